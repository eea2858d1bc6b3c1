/* SPDX-License-Identifier: Apache-2.0 */
/* Every error of the runtime: RT_ERROR(number, name, text). Numbers and names are the public
 * header's (enum cudaError in driver_types.h, CUDA 13.2); older headers have a part of them. */
#define RT_ERROR_TABLE(RT_ERROR)                                                                  \
    RT_ERROR(0, "cudaSuccess", "no error")                                                        \
    RT_ERROR(1, "cudaErrorInvalidValue", "invalid argument")                                      \
    RT_ERROR(2, "cudaErrorMemoryAllocation", "out of memory")                                     \
    RT_ERROR(3, "cudaErrorInitializationError", "initialization error")                           \
    RT_ERROR(4, "cudaErrorCudartUnloading", "driver shutting down")                               \
    RT_ERROR(5, "cudaErrorProfilerDisabled",                                                      \
             "profiler disabled while using external profiling tool")                             \
    RT_ERROR(6, "cudaErrorProfilerNotInitialized",                                                \
             "profiler not initialized: call cudaProfilerInitialize()")                           \
    RT_ERROR(7, "cudaErrorProfilerAlreadyStarted", "profiler already started")                    \
    RT_ERROR(8, "cudaErrorProfilerAlreadyStopped", "profiler already stopped")                    \
    RT_ERROR(9, "cudaErrorInvalidConfiguration", "invalid configuration argument")                \
    RT_ERROR(10, "cudaErrorVersionTranslation", "version translation error")                      \
    RT_ERROR(12, "cudaErrorInvalidPitchValue", "invalid pitch argument")                          \
    RT_ERROR(13, "cudaErrorInvalidSymbol", "invalid device symbol")                               \
    RT_ERROR(16, "cudaErrorInvalidHostPointer", "invalid host pointer")                           \
    RT_ERROR(17, "cudaErrorInvalidDevicePointer", "invalid device pointer")                       \
    RT_ERROR(18, "cudaErrorInvalidTexture", "invalid texture reference")                          \
    RT_ERROR(19, "cudaErrorInvalidTextureBinding", "invalid texture binding")                     \
    RT_ERROR(20, "cudaErrorInvalidChannelDescriptor", "invalid channel descriptor")               \
    RT_ERROR(21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy")          \
    RT_ERROR(22, "cudaErrorAddressOfConstant", "address of constant")                             \
    RT_ERROR(23, "cudaErrorTextureFetchFailed", "texture fetch failed")                           \
    RT_ERROR(24, "cudaErrorTextureNotBound", "texture not bound")                                 \
    RT_ERROR(25, "cudaErrorSynchronizationError", "synchronization error")                        \
    RT_ERROR(26, "cudaErrorInvalidFilterSetting", "invalid filter setting")                       \
    RT_ERROR(27, "cudaErrorInvalidNormSetting", "invalid norm setting")                           \
    RT_ERROR(28, "cudaErrorMixedDeviceExecution", "mixed device execution")                       \
    RT_ERROR(31, "cudaErrorNotYetImplemented", "not yet implemented")                             \
    RT_ERROR(32, "cudaErrorMemoryValueTooLarge", "memory value too large")                        \
    RT_ERROR(34, "cudaErrorStubLibrary", "CUDA driver is a stub library")                         \
    RT_ERROR(35, "cudaErrorInsufficientDriver",                                                   \
             "CUDA driver version is insufficient for CUDA runtime version")                      \
    RT_ERROR(36, "cudaErrorCallRequiresNewerDriver",                                              \
             "API call is not supported in the installed CUDA driver")                            \
    RT_ERROR(37, "cudaErrorInvalidSurface", "invalid surface")                                    \
    RT_ERROR(43, "cudaErrorDuplicateVariableName", "duplicate variable name")                     \
    RT_ERROR(44, "cudaErrorDuplicateTextureName", "duplicate texture name")                       \
    RT_ERROR(45, "cudaErrorDuplicateSurfaceName", "duplicate surface name")                       \
    RT_ERROR(46, "cudaErrorDevicesUnavailable",                                                   \
             "all CUDA-capable devices are busy or unavailable")                                  \
    RT_ERROR(49, "cudaErrorIncompatibleDriverContext", "incompatible driver context")             \
    RT_ERROR(52, "cudaErrorMissingConfiguration", "missing launch configuration")                 \
    RT_ERROR(53, "cudaErrorPriorLaunchFailure", "prior launch failure")                           \
    RT_ERROR(65, "cudaErrorLaunchMaxDepthExceeded", "launch max depth exceeded")                  \
    RT_ERROR(66, "cudaErrorLaunchFileScopedTex", "launch file scoped tex")                        \
    RT_ERROR(67, "cudaErrorLaunchFileScopedSurf", "launch file scoped surf")                      \
    RT_ERROR(68, "cudaErrorSyncDepthExceeded", "sync depth exceeded")                             \
    RT_ERROR(69, "cudaErrorLaunchPendingCountExceeded", "launch pending count exceeded")          \
    RT_ERROR(98, "cudaErrorInvalidDeviceFunction", "invalid device function")                     \
    RT_ERROR(100, "cudaErrorNoDevice", "no CUDA-capable device is detected")                      \
    RT_ERROR(101, "cudaErrorInvalidDevice", "invalid device ordinal")                             \
    RT_ERROR(102, "cudaErrorDeviceNotLicensed", "device not licensed")                            \
    RT_ERROR(103, "cudaErrorSoftwareValidityNotEstablished", "software validity not established") \
    RT_ERROR(127, "cudaErrorStartupFailure", "startup failure")                                   \
    RT_ERROR(200, "cudaErrorInvalidKernelImage", "device kernel image is invalid")                \
    RT_ERROR(201, "cudaErrorDeviceUninitialized", "invalid device context")                       \
    RT_ERROR(205, "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed")            \
    RT_ERROR(206, "cudaErrorUnmapBufferObjectFailed", "unmapping of buffer object failed")        \
    RT_ERROR(207, "cudaErrorArrayIsMapped", "array is mapped")                                    \
    RT_ERROR(208, "cudaErrorAlreadyMapped", "already mapped")                                     \
    RT_ERROR(209, "cudaErrorNoKernelImageForDevice",                                              \
             "no kernel image is available for execution on the device")                          \
    RT_ERROR(210, "cudaErrorAlreadyAcquired", "already acquired")                                 \
    RT_ERROR(211, "cudaErrorNotMapped", "not mapped")                                             \
    RT_ERROR(212, "cudaErrorNotMappedAsArray", "not mapped as array")                             \
    RT_ERROR(213, "cudaErrorNotMappedAsPointer", "not mapped as pointer")                         \
    RT_ERROR(214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered")             \
    RT_ERROR(215, "cudaErrorUnsupportedLimit", "limit is not supported on this architecture")     \
    RT_ERROR(216, "cudaErrorDeviceAlreadyInUse",                                                  \
             "exclusive-thread device already in use by a different thread")                      \
    RT_ERROR(217, "cudaErrorPeerAccessUnsupported",                                               \
             "peer access is not supported between these two devices")                            \
    RT_ERROR(218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed")                          \
    RT_ERROR(219, "cudaErrorInvalidGraphicsContext", "invalid graphics context")                  \
    RT_ERROR(220, "cudaErrorNvlinkUncorrectable", "nvlink uncorrectable")                         \
    RT_ERROR(221, "cudaErrorJitCompilerNotFound", "jit compiler not found")                       \
    RT_ERROR(222, "cudaErrorUnsupportedPtxVersion", "unsupported ptx version")                    \
    RT_ERROR(223, "cudaErrorJitCompilationDisabled", "jit compilation disabled")                  \
    RT_ERROR(224, "cudaErrorUnsupportedExecAffinity", "unsupported exec affinity")                \
    RT_ERROR(225, "cudaErrorUnsupportedDevSideSync", "unsupported dev side sync")                 \
    RT_ERROR(226, "cudaErrorContained", "contained")                                              \
    RT_ERROR(300, "cudaErrorInvalidSource", "invalid source")                                     \
    RT_ERROR(301, "cudaErrorFileNotFound", "file not found")                                      \
    RT_ERROR(302, "cudaErrorSharedObjectSymbolNotFound", "shared object symbol not found")        \
    RT_ERROR(303, "cudaErrorSharedObjectInitFailed", "shared object initialization failed")       \
    RT_ERROR(304, "cudaErrorOperatingSystem",                                                     \
             "OS call failed or operation not supported on this OS")                              \
    RT_ERROR(400, "cudaErrorInvalidResourceHandle", "invalid resource handle")                    \
    RT_ERROR(401, "cudaErrorIllegalState",                                                        \
             "the operation cannot be performed in the present state")                            \
    RT_ERROR(402, "cudaErrorLossyQuery", "lossy query")                                           \
    RT_ERROR(500, "cudaErrorSymbolNotFound", "named symbol not found")                            \
    RT_ERROR(600, "cudaErrorNotReady", "device not ready")                                        \
    RT_ERROR(700, "cudaErrorIllegalAddress", "an illegal memory access was encountered")          \
    RT_ERROR(701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch")     \
    RT_ERROR(702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated")            \
    RT_ERROR(703, "cudaErrorLaunchIncompatibleTexturing", "launch incompatible texturing")        \
    RT_ERROR(704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled")          \
    RT_ERROR(705, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled")            \
    RT_ERROR(708, "cudaErrorSetOnActiveProcess",                                                  \
             "cannot set while device is active in this process")                                 \
    RT_ERROR(709, "cudaErrorContextIsDestroyed", "context is destroyed")                          \
    RT_ERROR(710, "cudaErrorAssert", "device-side assert triggered")                              \
    RT_ERROR(711, "cudaErrorTooManyPeers", "peer mapping resources exhausted")                    \
    RT_ERROR(712, "cudaErrorHostMemoryAlreadyRegistered",                                         \
             "part or all of the requested memory range is already mapped")                       \
    RT_ERROR(713, "cudaErrorHostMemoryNotRegistered",                                             \
             "pointer does not correspond to a registered memory region")                         \
    RT_ERROR(714, "cudaErrorHardwareStackError", "hardware stack error")                          \
    RT_ERROR(715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered")        \
    RT_ERROR(716, "cudaErrorMisalignedAddress", "misaligned address")                             \
    RT_ERROR(717, "cudaErrorInvalidAddressSpace",                                                 \
             "operation not supported on global/shared address space")                            \
    RT_ERROR(718, "cudaErrorInvalidPc", "invalid program counter")                                \
    RT_ERROR(719, "cudaErrorLaunchFailure", "unspecified launch failure")                         \
    RT_ERROR(720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch")  \
    RT_ERROR(721, "cudaErrorTensorMemoryLeak", "tensor memory leak")                              \
    RT_ERROR(800, "cudaErrorNotPermitted", "operation not permitted")                             \
    RT_ERROR(801, "cudaErrorNotSupported", "operation not supported")                             \
    RT_ERROR(802, "cudaErrorSystemNotReady", "system not yet initialized")                        \
    RT_ERROR(803, "cudaErrorSystemDriverMismatch",                                                \
             "system has unsupported display driver / cuda driver combination")                   \
    RT_ERROR(804, "cudaErrorCompatNotSupportedOnDevice", "compat not supported on device")        \
    RT_ERROR(805, "cudaErrorMpsConnectionFailed", "mps connection failed")                        \
    RT_ERROR(806, "cudaErrorMpsRpcFailure", "mps rpc failure")                                    \
    RT_ERROR(807, "cudaErrorMpsServerNotReady", "mps server not ready")                           \
    RT_ERROR(808, "cudaErrorMpsMaxClientsReached", "mps max clients reached")                     \
    RT_ERROR(809, "cudaErrorMpsMaxConnectionsReached", "mps max connections reached")             \
    RT_ERROR(810, "cudaErrorMpsClientTerminated", "mps client terminated")                        \
    RT_ERROR(811, "cudaErrorCdpNotSupported", "cdp not supported")                                \
    RT_ERROR(812, "cudaErrorCdpVersionMismatch", "cdp version mismatch")                          \
    RT_ERROR(900, "cudaErrorStreamCaptureUnsupported",                                            \
             "operation not permitted when stream is capturing")                                  \
    RT_ERROR(901, "cudaErrorStreamCaptureInvalidated",                                            \
             "operation failed due to a previous error during capture")                           \
    RT_ERROR(902, "cudaErrorStreamCaptureMerge",                                                  \
             "operation would result in a merge of separate capture sequences")                   \
    RT_ERROR(903, "cudaErrorStreamCaptureUnmatched",                                              \
             "capture was not ended in the same stream as it began")                              \
    RT_ERROR(904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work")         \
    RT_ERROR(905, "cudaErrorStreamCaptureIsolation",                                              \
             "dependency created on uncaptured work in another stream")                           \
    RT_ERROR(906, "cudaErrorStreamCaptureImplicit",                                               \
             "operation would make the legacy stream depend on a capturing blocking stream")      \
    RT_ERROR(907, "cudaErrorCapturedEvent",                                                       \
             "operation not permitted on an event last recorded in a capturing stream")           \
    RT_ERROR(908, "cudaErrorStreamCaptureWrongThread",                                            \
             "attempt to terminate a thread-local capture sequence from another thread")          \
    RT_ERROR(909, "cudaErrorTimeout", "wait operation timed out")                                 \
    RT_ERROR(910, "cudaErrorGraphExecUpdateFailure",                                              \
             "the graph update was not performed because it included changes which "              \
             "violated constraints specific to instantiated graph update")                        \
    RT_ERROR(911, "cudaErrorExternalDevice", "external device")                                   \
    RT_ERROR(912, "cudaErrorInvalidClusterSize", "invalid cluster size")                          \
    RT_ERROR(913, "cudaErrorFunctionNotLoaded", "function not loaded")                            \
    RT_ERROR(914, "cudaErrorInvalidResourceType", "invalid resource type")                        \
    RT_ERROR(915, "cudaErrorInvalidResourceConfiguration", "invalid resource configuration")      \
    RT_ERROR(917, "cudaErrorStreamDetached", "stream detached")                                   \
    RT_ERROR(999, "cudaErrorUnknown", "unknown error")                                            \
    RT_ERROR(10000, "cudaErrorApiFailureBase", "api failure base")
