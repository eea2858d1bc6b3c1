# SPDX-License-Identifier: Apache-2.0
# Writes a header with the commit of the sources, where it is another one than the header has.
#   SOURCE  the folder of the sources
#   GIVEN   the commit where there is no repository (a tarball); may be empty
#   OUTPUT  the header
set(commit "${GIVEN}")
if(NOT commit)
  execute_process(COMMAND git describe --always --abbrev=12 --exclude=* --dirty=+
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "+" " with changes" commit "${commit}")
endif()
if(NOT commit)
  set(commit "unknown")
endif()
set(text "#define MEMSHIM_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
