# Build only what llama-server needs: every other program of tools/ leaves the default target.
if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
  function(specdyno_keep_only_server)
    foreach(tool batched-bench gguf-split imatrix llama-bench completion perplexity quantize cli tokenize tts
                 cvector-generator export-lora fit-params results)
      if(IS_DIRECTORY "${CMAKE_SOURCE_DIR}/tools/${tool}")
        set_property(DIRECTORY "${CMAKE_SOURCE_DIR}/tools/${tool}" PROPERTY EXCLUDE_FROM_ALL TRUE)
      endif()
    endforeach()
  endfunction()
  cmake_language(DEFER CALL specdyno_keep_only_server)
endif()
