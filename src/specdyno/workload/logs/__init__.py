"""Production logs to classes of prompts, sessions and a piece of a plan; nothing leaves the machine.

A log is read twice: once in full, for counts, shares, lengths, duplicates and sessions; then the few rows that are
kept (a seeded sample of each class, drawn by chance) are read again and written. Memory does not grow with the log,
but for about 50 bytes a request (hashes that find duplicates, results of a batch, sessions). What long rows repeat of
earlier ones is read once (`beginnings`).

Every request gets exactly one class, the first rule that fits (`classify` holds them as one table):

| class | rule |
|---|---|
| tools | the answer calls tools; or tools are on offer and the log has no answer; or a call is forced |
| structured | a response format asks for JSON; or the whole answer is a JSON object or list |
| code_edit | a third of the answer is code, and the question holds a third or more of its lines |
| code | a third of the answer is code; without an answer: a third of the question is, or it asks for code |
| acknowledgement | the answer has at most 60 characters |
| summary | a question of 1,000 characters or more that asks for a summary; or of 4,000 with an answer of a quarter |
| reasoning | the answer carries its reasoning or LaTeX; or the question asks to prove, solve or think step by step |
| chat | a conversation in words |
| other | everything else: bare prompts that no rule takes, no words, an empty answer |

The question is the last message of the user. Answers and questions are looked at up to 4,000 characters; whether one
asks for something is read in its first 300 (of summaries also its last). Languages are told from scripts and from small
words, so a short text has none; beyond the first 8 MiB of a file they are those of every sixteenth request.
"""

DEFAULT_KEPT = 1000
"""Prompts that are kept of each class."""
