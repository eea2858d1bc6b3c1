# SPDX-License-Identifier: Apache-2.0
# What a program that links the library finds it by, and the distributions' packages: configured with
# MEMSHIM_PACKAGE=deb or rpm, cpack makes memshim, and libmemshim-dev or memshim-devel. scripts/package.sh
# does both.
include(CMakePackageConfigHelpers)
set(from ${PROJECT_SOURCE_DIR}/scripts/package)
set(made ${PROJECT_BINARY_DIR}/package-files)

configure_file(${from}/memshim.pc.in ${made}/memshim.pc @ONLY)
install(FILES ${made}/memshim.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
install(EXPORT memshim NAMESPACE memshim:: FILE memshimConfig.cmake COMPONENT dev
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/memshim)
write_basic_package_version_file(${made}/memshimConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${made}/memshimConfigVersion.cmake COMPONENT dev
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/memshim)

set(MEMSHIM_PACKAGE "" CACHE STRING "What cpack makes: deb or rpm (empty: nothing)")
if(NOT MEMSHIM_PACKAGE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT memshim)
  return()
endif()

set(MEMSHIM_MAINTAINER "the authors of memshim <memshim@example.org>" CACHE STRING "Who makes packages")
set(CPACK_PACKAGE_NAME memshim)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "memshim")
set(CPACK_PACKAGE_CONTACT "${MEMSHIM_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_COMPONENTS_ALL memshim dev)
set(CPACK_STRIP_FILES ON)
set(summary "memory pool, hard cap and post-mortem for training on CUDA devices")
set(text "libmemshim.so is preloaded into a program that trains on CUDA devices.
It stands in front of the CUDA driver's interface, and gives the program a
pool that does not fragment, a cap on its device memory, and a report of
where the memory was when it ends or dies.")
set(text_dev "The header memshim.h for programs and allocators that tell the preloaded
library of their tensors, phases and steps, with what pkg-config and CMake
find it by.")

if(MEMSHIM_PACKAGE STREQUAL "deb")
  set(CPACK_GENERATOR DEB)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
  set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${MEMSHIM_MAINTAINER}")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_MEMSHIM_PACKAGE_NAME memshim)
  set(CPACK_DEBIAN_MEMSHIM_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_MEMSHIM_PACKAGE_RECOMMENDS libdw1)
  # Not cpack's own: that names the simulated GPU's libraries, which bear the driver's names.
  file(WRITE ${made}/shlibs "libmemshim 1 memshim (>= ${PROJECT_VERSION})\n")
  file(WRITE ${made}/triggers "activate-noawait ldconfig\n")
  set(CPACK_DEBIAN_MEMSHIM_PACKAGE_CONTROL_EXTRA ${made}/triggers ${made}/shlibs)
  set(CPACK_DEBIAN_MEMSHIM_DESCRIPTION "${summary}\n${text}")
  set(CPACK_DEBIAN_DEV_PACKAGE_NAME libmemshim-dev)
  set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "memshim (= ${PROJECT_VERSION}-1)")
  set(CPACK_DEBIAN_DEV_DESCRIPTION "${summary} (header)\n${text_dev}")
  execute_process(COMMAND git log -1 --format=%cD WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                  OUTPUT_VARIABLE MEMSHIM_DATE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT MEMSHIM_DATE)
    string(TIMESTAMP MEMSHIM_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
  endif()
  configure_file(${from}/debian/copyright.in ${made}/copyright @ONLY)
  configure_file(${from}/debian/changelog.in ${made}/changelog.Debian @ONLY)
  configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${made}/changelog COPYONLY)
  foreach(pair memshim:memshim dev:libmemshim-dev)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 component)
    list(GET pair 1 package)
    install(FILES ${made}/copyright ${made}/changelog.Debian ${made}/changelog
            DESTINATION share/doc/${package} COMPONENT ${component})
    install(FILES ${from}/debian/${package}.lintian-overrides RENAME ${package}
            DESTINATION share/lintian/overrides COMPONENT ${component})
    install(CODE "set(prefix \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX})
                  file(GLOB texts \${prefix}/share/man/man1/*.1 \${prefix}/share/doc/${package}/changelog*)
                  if(texts)
                    execute_process(COMMAND gzip -9nf \${texts})
                  endif()" COMPONENT ${component})
  endforeach()
else()
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT memshim)
  set(CPACK_GENERATOR RPM)
  set(CPACK_RPM_COMPONENT_INSTALL ON)
  set(CPACK_RPM_MAIN_COMPONENT memshim)
  set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
  # The simulated GPU's libraries bear the driver's names, and provide nothing to other packages.
  set(private "^${CMAKE_INSTALL_FULL_LIBDIR}/memshim/.*$")
  set(CPACK_RPM_SPEC_MORE_DEFINE
      "%global __provides_exclude_from ${private}\n%global __requires_exclude_from ${private}")
  # Folders that are other packages'.
  set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
      ${CMAKE_INSTALL_FULL_LIBDIR}/cmake ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
      ${CMAKE_INSTALL_FULL_MANDIR} ${CMAKE_INSTALL_FULL_MANDIR}/man1)
  foreach(folder bash-completion bash-completion/completions fish fish/vendor_completions.d zsh
                 zsh/site-functions)
    list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION ${CMAKE_INSTALL_FULL_DATADIR}/${folder})
  endforeach()
  set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
  set(CPACK_RPM_PACKAGE_RELEASE 1)
  set(CPACK_RPM_MEMSHIM_PACKAGE_SUMMARY "${summary}")
  set(CPACK_RPM_MEMSHIM_PACKAGE_DESCRIPTION "${text}")
  set(CPACK_RPM_MEMSHIM_PACKAGE_SUGGESTS elfutils-libs)
  set(CPACK_RPM_DEV_PACKAGE_NAME memshim-devel)
  set(CPACK_RPM_DEV_PACKAGE_SUMMARY "${summary} (header)")
  set(CPACK_RPM_DEV_PACKAGE_DESCRIPTION "${text_dev}")
  set(CPACK_RPM_DEV_PACKAGE_REQUIRES "memshim = ${PROJECT_VERSION}-1")
  set(CPACK_RPM_MEMSHIM_POST_INSTALL_SCRIPT_FILE ${made}/ldconfig.sh)
  set(CPACK_RPM_MEMSHIM_POST_UNINSTALL_SCRIPT_FILE ${made}/ldconfig.sh)
  file(WRITE ${made}/ldconfig.sh "/sbin/ldconfig\n")
endif()
include(CPack)
