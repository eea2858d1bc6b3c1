# SPDX-License-Identifier: Apache-2.0
# Writes the manual pages and completions that `memshim man` and `memshim completion` print.
#   MEMSHIM      the executable
#   SHARE        the folder to write below
#   PAGES        paths below it that end in memshim.1 or memshim-COMMAND.1, parted by commas
#   COMPLETIONS  likewise; the path's first folder begins with the shell's name
string(REPLACE "," ";" PAGES "${PAGES}")
string(REPLACE "," ";" COMPLETIONS "${COMPLETIONS}")

function(write_document path)
  get_filename_component(folder ${SHARE}/${path} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${MEMSHIM} ${ARGN} OUTPUT_FILE ${SHARE}/${path} RESULT_VARIABLE failed)
  if(failed)
    file(REMOVE ${SHARE}/${path})
    message(FATAL_ERROR "memshim ${ARGN} failed: ${failed}")
  endif()
endfunction()

foreach(page ${PAGES})
  get_filename_component(name ${page} NAME)
  string(REGEX REPLACE "^memshim-?(.*)\\.1$" "\\1" name ${name})
  write_document(${page} man ${name})
endforeach()
foreach(completion ${COMPLETIONS})
  string(REGEX MATCH "^[a-z]+" shell ${completion})
  write_document(${completion} completion ${shell})
endforeach()
