"""Which models vLLM and llama.cpp know, as targets and as drafts: literal tables, read in their sources.

A newer engine knows more; a test compares the tables with the installed vLLM and names what moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdyno.plan.methods import Method

# Targets that hand out the hidden states of inner layers (the interface SupportsEagle3, its subclasses included).
# An architecture in neither list is served by the Transformers backend, which hands them out.
HANDS_OUT_HIDDEN_STATES = frozenset(
    """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM Cohere2MoeForCausalLM CohereCompassForConditionalGeneration
    Cosmos3ForConditionalGeneration CwmForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM
    DeepseekV3ForCausalLM DeepseekV41ForCausalLM DeepseekV4ForCausalLM DeepseekV4ForConditionalGeneration
    Emu3ForConditionalGeneration Ernie4_5ForCausalLM Exaone4_5_ForConditionalGeneration FlexOlmoForCausalLM
    GPTBigCodeForCausalLM GPTNeoXForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedForConditionalGeneration Glm5NextForCausalLM Glm5NextForConditionalGeneration GlmForCausalLM
    GlmMoeDsaForCausalLM GptOssForCausalLM GraniteForCausalLM GraniteSWAForCausalLM HunYuanDenseV1ForCausalLM
    HunYuanMoEV1ForCausalLM HunYuanVLForConditionalGeneration IQuestCoderForCausalLM InternLM3ForCausalLM
    InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration
    InternS2PreviewForConditionalGeneration Jais2ForCausalLM K2HorizonForCausalLM KimiK25ForConditionalGeneration
    KimiK3ForConditionalGeneration KimiLinearForCausalLM LLaMAForCausalLM LagunaForCausalLM
    LightOnOCRForConditionalGeneration Llama4ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM
    LlavaForConditionalGeneration MellumForCausalLM MiMoForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM
    MiMoV2OmniForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMV4_6ForConditionalGeneration
    MiniCPMV4_7ForConditionalGeneration MiniMaxM2ForCausalLM MiniMaxM3SparseForCausalLM
    MiniMaxM3SparseForConditionalGeneration Ministral3ForCausalLM Mistral3ForConditionalGeneration
    MistralForCausalLM MistralLarge3ForCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration
    NanbeigeForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3
    NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 Olmo2ForCausalLM
    Olmo3ForCausalLM OlmoForCausalLM OpenCUAForConditionalGeneration Phi3ForCausalLM PhiForCausalLM
    PixtralForConditionalGeneration Plamo3ForCausalLM Qwen2ForCausalLM Qwen2_5_VLForConditionalGeneration
    Qwen3ASRForConditionalGeneration Qwen3ASRRealtimeGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM
    Qwen3NextForCausalLM Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
    Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM
    Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration SarvamMLAForCausalLM SeedOssForCausalLM
    SmolLM3ForCausalLM Starcoder2ForCausalLM Step1ForCausalLM TeleChat2ForCausalLM TeleChat3ForCausalLM
    TeleFLMForCausalLM VaultGemmaForCausalLM VibeVoiceAsrForConditionalGeneration
    """.split()  # noqa: SIM905 (one name a line would take two pages)
)
KEEPS_HIDDEN_STATES = frozenset(
    """
    AXK1ForCausalLM AriaForConditionalGeneration AudioFlamingo3ForConditionalGeneration
    BagelForConditionalGeneration BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM
    BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration BeeForConditionalGeneration
    Blip2ForConditionalGeneration BloomForCausalLM ChatGLMForConditionalGeneration ChatGLMModel Cohere2ForCausalLM
    Cohere2VisionForConditionalGeneration CohereAsrForConditionalGeneration CohereForCausalLM
    Cosmos3EdgeForConditionalGeneration DbrxForCausalLM DeciLMForCausalLM DeepseekOCR2ForCausalLM
    DeepseekOCRForCausalLM DeepseekVLV2ForCausalLM DiffusionGemmaForBlockDiffusion Dots3NoteForCausalLM
    DotsOCRForCausalLM Eagle2_5_VLForConditionalGeneration Ernie4_5_MoeForCausalLM
    Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM ExaoneForCausalLM ExaoneMoEForCausalLM
    ExaoneMoeForCausalLM FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM
    FireRedASR2ForConditionalGeneration FunASRForConditionalGeneration FunAudioChatForConditionalGeneration
    GLM4VForCausalLM GPT2LMHeadModel GPTJForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM
    Gemma3ForConditionalGeneration Gemma3nForCausalLM Gemma3nForConditionalGeneration GemmaForCausalLM
    Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM Glm4vForConditionalGeneration
    Glm4vMoeForConditionalGeneration GlmAsrForConditionalGeneration GlmOcrForConditionalGeneration
    Granite4VisionForConditionalGeneration GraniteMoeForCausalLM GraniteMoeHybridForCausalLM
    GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM GraniteSpeechForConditionalGeneration
    GraniteSpeechPlusForConditionalGeneration H2OVLChatModel HCXVisionV2ForCausalLM HYV3ForCausalLM HYV4ForCausalLM
    HfMoondream HrmTextForCausalLM HyperCLOVAXForCausalLM IQuestLoopCoderForCausalLM
    Idefics3ForConditionalGeneration InklingForCausalLM InklingForConditionalGeneration InternLM2ForCausalLM
    InternS1ForConditionalGeneration InternVLChatModel InternVLForConditionalGeneration
    IsaacForConditionalGeneration JambaForCausalLM KananaVForConditionalGeneration KeyeForConditionalGeneration
    KeyeVL1_5ForConditionalGeneration KimiVLForConditionalGeneration Lfm2ForCausalLM Lfm2MoeForCausalLM
    Lfm2VlForConditionalGeneration Llama_Nemotron_Nano_VL LlavaNextForConditionalGeneration
    LlavaNextVideoForConditionalGeneration LlavaOnevision2ForConditionalGeneration
    LlavaOnevisionForConditionalGeneration LongcatFlashForCausalLM LongcatFlashNgramForCausalLM Mamba2ForCausalLM
    MambaForCausalLM MiDashengLMModel MiniCPMO MiniCPMV MixtralForCausalLM Molmo2ForConditionalGeneration
    MolmoForCausalLM Moondream3ForCausalLM MoonshotKimiaForCausalLM MossAudioModel
    MossTranscribeDiarizeForConditionalGeneration NVLM_D NemotronForCausalLM NemotronParseForConditionalGeneration
    OPTForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM OpenPanguVLForConditionalGeneration
    OpenVLAForActionPrediction OrionForCausalLM Ovis Ovis2_5 Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM
    PaddleOCRVLForConditionalGeneration PaliGemmaForConditionalGeneration PanguEmbeddedForCausalLM
    PanguProMoEV2ForCausalLM PanguUltraMoEForCausalLM Param2MoEForCausalLM Phi3VForCausalLM Phi4ForCausalLMV
    Phi4MMForCausalLM PhiMoEForCausalLM QianfanOCRForConditionalGeneration Qwen2AudioForConditionalGeneration
    Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel
    Qwen4ExpForCausalLM RForConditionalGeneration Rnj1ForCausalLM SarvamMoEForCausalLM SkyworkR1VChatModel
    SmolVLMForConditionalGeneration SolarForCausalLM StableLmForCausalLM Step3TextForCausalLM
    Step3VLForConditionalGeneration Step3p5ForCausalLM Step3p7ForConditionalGeneration
    StepVLForConditionalGeneration UltravoxModel UnlimitedOCRForCausalLM VoxtralForConditionalGeneration
    VoxtralRealtimeGeneration WhisperForConditionalGeneration Zamba2ForCausalLM
    """.split()  # noqa: SIM905 (one name a line would take two pages)
)

# Draft architectures in vLLM's registry, by method, as they are named after vLLM has put its prefix before them.
DRAFTS: dict[Method, frozenset[str]] = {
    Method.EAGLE: frozenset(
        {
            *("EagleLlamaForCausalLM", "EagleLlama4ForCausalLM", "EagleMiniCPMForCausalLM", "EagleMistralForCausalLM"),
            *("EagleCohereForCausalLM", "EagleMistralLarge3ForCausalLM", "EagleDeepSeekMTPModel"),
        }
    ),
    Method.EAGLE3: frozenset(
        {
            *("Eagle3LlamaForCausalLM", "LlamaForCausalLMEagle3", "Eagle3MiniMaxM2ForCausalLM"),
            *("Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM", "Eagle3Qwen3ForCausalLM"),
            *("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"),
            *("PEagleDraftModel", "PeagleLlamaForCausalLM", "PeagleQwen3ForCausalLM"),
        }
    ),
    Method.DFLASH: frozenset(
        {
            *("DFlashDraftModel", "DFlash2DraftModel", "LiLiCorrDraftModel", "DFlashLagunaForCausalLM"),
            *("DFlashMuseGlimmerAssistantModel", "MuseGlimmerAssistantModel"),
        }
    ),
    Method.DSPARK: frozenset(
        {
            *("Qwen3DSparkModel", "Qwen3OmniDSparkModel", "Gemma4DSparkModel", "K3DSparkModel"),
            *("DSparkDraftModel", "DSparkV41DraftModel"),
        }
    ),
    Method.MEDUSA: frozenset({"MedusaModel"}),
    Method.GEMMA4_MTP: frozenset({"Gemma4MTPModel"}),
}
# Drafts that exist in the V2 runner only.
V2_DRAFTS = frozenset({"DFlash2DraftModel", "LiLiCorrDraftModel"})
PREFIXES = {Method.EAGLE: "Eagle", Method.EAGLE3: "Eagle3", Method.DFLASH: "DFlash"}
SPECULATORS = {
    "eagle3": (Method.EAGLE3, {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"}),
    "peagle": (Method.EAGLE3, {"llama": "PeagleLlamaForCausalLM", "qwen3": "PeagleQwen3ForCausalLM"}),
    "dflash": (Method.DFLASH, {"*": "DFlashDraftModel"}),
    "dflash2": (Method.DFLASH, {"*": "DFlash2DraftModel"}),
    "dspark": (Method.DSPARK, {"*": "Qwen3DSparkModel"}),
}
ASSISTANTS = frozenset({"gemma4_assistant", "gemma4_unified_assistant"})

# Words in a draft's path from which vLLM derives a method, in the order in which it looks, whatever was asked for;
# the methods of KEPT are left alone.
PATH_WORDS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
KEPT = frozenset({Method.EAGLE, Method.EAGLE3, Method.DFLASH, Method.DSPARK})


@dataclass(frozen=True, slots=True)
class MtpTarget:
    """Targets whose own multi-token layers vLLM can draft with, and where their number stands."""

    draft: str  # vLLM's architecture of the draft
    key: str | None  # key of the configuration that holds the number of layers; None: always 1
    model_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    missing: int | None = None  # the number where the key is absent
    if_announced: bool = False  # without layers it is a model like any other


_NEXTN = "num_nextn_predict_layers"
MTP_TARGETS = (
    MtpTarget("DeepSeekMTPModel", _NEXTN, ("deepseek_v3", "deepseek_mtp")),
    MtpTarget("DeepseekV32MTPModel", _NEXTN, ("deepseek_v32", "glm_moe_dsa")),
    MtpTarget("DeepSeekV4MTPModel", _NEXTN, ("deepseek_v4",)),
    MtpTarget("OpenPanguMTPModel", _NEXTN, ("pangu_ultra_moe", "pangu_ultra_moe_mtp")),
    MtpTarget("KimiK3MTPModel", _NEXTN, ("kimi_k3",)),
    MtpTarget("MiMoMTPModel", _NEXTN, (), ("MiMoForCausalLM",)),
    MtpTarget("MiMoV2MTPModel", None, (), ("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM")),
    MtpTarget("MiMoV2OmniMTPModel", None, (), ("MiMoV2OmniForCausalLM",)),
    MtpTarget("Glm4MoeMTPModel", _NEXTN, (), ("Glm4MoeForCausalLM",)),
    MtpTarget("Glm4MoeLiteMTPModel", _NEXTN, (), ("Glm4MoeLiteForCausalLM",)),
    MtpTarget("GlmOcrMTPModel", _NEXTN, (), ("GlmOcrForConditionalGeneration",)),
    MtpTarget("Glm5NextMTPModel", _NEXTN, ("glm5_next",)),
    MtpTarget("ErnieMTPModel", _NEXTN, ("ernie4_5_moe", "ernie_mtp")),
    MtpTarget("NemotronHMTPModel", _NEXTN, ("nemotron_h", "nemotron_h_puzzle", "nemotron_h_mtp"), if_announced=True),
    MtpTarget(
        "NemotronHMTPModel",
        _NEXTN,
        (),
        ("NemotronH_Super_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3"),
        if_announced=True,
    ),
    MtpTarget("Qwen3NextMTP", _NEXTN, ("qwen3_next", "qwen3_next_mtp")),
    MtpTarget("Qwen4ExpMTP", "mtp_num_hidden_layers", ("qwen4_exp", "qwen4_exp_text")),
    MtpTarget("Qwen3_5MTP", "mtp_num_hidden_layers", ("qwen3_5", "qwen3_5_text")),
    MtpTarget("Qwen3_5MoeMTP", "mtp_num_hidden_layers", ("qwen3_5_moe", "qwen3_5_moe_text")),
    MtpTarget("Qwen3_5MTP", "mtp_num_hidden_layers", ("intern_s2_preview",)),
    MtpTarget("InternS2MobiusMTP", "mtp_num_hidden_layers", ("interns2_mobius",)),
    MtpTarget(
        "BailingMoeV3MTPModel",
        _NEXTN,
        (),
        ("BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"),
    ),
    MtpTarget("BailingMoeV25MTPModel", _NEXTN, ("bailing_hybrid",), ("BailingMoeV2_5ForCausalLM",)),
    MtpTarget("ExaoneMoeMTP", _NEXTN, ("exaone_moe", "exaone_moe_mtp")),
    MtpTarget("Exaone4_5_MTP", _NEXTN, ("exaone4_5", "exaone4_5_mtp")),
    MtpTarget("LongCatFlashMTPModel", _NEXTN, ("longcat_flash",), missing=1),
    MtpTarget(
        "Step3p5MTP",
        _NEXTN,
        ("step3p5", "step3p7"),
        ("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"),
        missing=1,
    ),
    MtpTarget("Dots3NoteMTPModel", _NEXTN, ("dots3_note",), missing=1),
    MtpTarget("HYV3MTPModel", _NEXTN, ("hy_v3",)),
    MtpTarget("HYV4MTPModel", _NEXTN, ("hy_v4",)),
    MtpTarget("InklingMTPModel", f"mtp_config.{_NEXTN}", ("inkling_mm_model", "inkling_model")),
    MtpTarget(
        "MiniMaxM3MTP",
        "num_mtp_modules",
        ("minimax_m3_vl", "minimax_m3_mtp"),
        ("MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3MTP"),
        missing=1,
    ),
    MtpTarget("EagleMistralLarge3ForCausalLM", None, (), ("MistralLarge3ForCausalLM",)),
    MtpTarget("Gemma4MTPModel", None, ("gemma4_assistant", "gemma4_unified_assistant")),
)
# Model types for which vLLM turns any draft into an MTP draft, and those that refuse MTP.
REFUSES_MTP = frozenset({"deepseek_v41"})
# Announcements of MTP layers, wherever the engine reads them.
MTP_KEYS = (_NEXTN, "mtp_num_hidden_layers", "num_mtp_modules")

# llama.cpp: `general.architecture` of a draft.
GGUF_DRAFTS: dict[Method, str] = {
    Method.EAGLE3: "eagle3",
    Method.DFLASH: "dflash",
    Method.DSPARK: "dflash",
    Method.GEMMA4_MTP: "gemma4-assistant",
}
