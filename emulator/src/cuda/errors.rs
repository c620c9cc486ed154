//! The driver's error codes.

use std::ffi::CStr;

/// The failure of a call.
#[derive(Debug)]
pub(super) struct Failure {
    /// The code that the call returns.
    pub(super) code: i32,
    /// Description of the program's mistake; `None` if a correct program can fail this way.
    pub(super) misuse: Option<String>,
}

/// The result of a call.
pub(super) type Outcome<T = ()> = Result<T, Failure>;

impl From<i32> for Failure {
    /// A failure not caused by the caller.
    fn from(code: i32) -> Self {
        Self { code, misuse: None }
    }
}

/// A failure that never occurs in a correct program.
pub(super) fn misuse(code: i32, sentence: impl Into<String>) -> Failure {
    Failure { code, misuse: Some(sentence.into()) }
}

/// An error's code, name and description.
type Row = (i32, &'static str, &'static CStr);

/// Expands to a row of the table.
macro_rules! row {
    ($name:ident, $code:literal, $text:literal) => {
        ($code, concat!("CUDA_ERROR_", stringify!($name), "\0"), $text)
    };
}

/// Defines a constant for each error code, and a table of all codes.
macro_rules! errors {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(
            #[doc = concat!("CUDA's error number ", $code, ".")]
            pub(super) const $name: i32 = $code;
        )*
        const TABLE: &[Row] = &[$(row!($name, $code, $text)),*];
    };
}

errors! {
    INVALID_VALUE = 1, c"invalid argument";
    OUT_OF_MEMORY = 2, c"out of memory";
    NOT_INITIALIZED = 3, c"initialization error";
    NO_DEVICE = 100, c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"invalid device ordinal";
    INVALID_CONTEXT = 201, c"invalid device context";
    NO_BINARY_FOR_GPU = 209, c"no kernel image is available for execution on the device";
    INVALID_PTX = 218, c"a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = 222, c"the provided PTX was compiled with an unsupported toolchain.";
    INVALID_HANDLE = 400, c"invalid resource handle";
    ILLEGAL_STATE = 401, c"the operation cannot be performed in the present state";
    NOT_FOUND = 500, c"named symbol not found";
    NOT_READY = 600, c"device not ready";
    ILLEGAL_ADDRESS = 700, c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, c"too many resources requested for launch";
    CONTEXT_IS_DESTROYED = 709, c"context is destroyed";
    LAUNCH_FAILED = 719, c"unspecified launch failure";
    NOT_SUPPORTED = 801, c"operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, c"operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, c"operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, c"operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, c"capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, c"capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, c"dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906,
        c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907,
        c"operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908,
        c"attempt to terminate a thread-local capture sequence from another thread";
}

/// Success, and codes that are only injected or returned by kernels.
const MORE: &[Row] = &[
    (0, "CUDA_SUCCESS\0", c"no error"),
    row!(DEVICE_UNAVAILABLE, 46, c"CUDA-capable device(s) is/are busy or unavailable"),
    row!(INVALID_IMAGE, 200, c"device kernel image is invalid"),
    row!(ECC_UNCORRECTABLE, 214, c"uncorrectable ECC error encountered"),
    row!(NVLINK_UNCORRECTABLE, 220, c"uncorrectable NVLink error detected"),
    row!(LAUNCH_TIMEOUT, 702, c"the launch timed out and was terminated"),
    row!(ASSERT, 710, c"device-side assert triggered"),
    row!(HARDWARE_STACK_ERROR, 714, c"hardware stack error"),
    row!(ILLEGAL_INSTRUCTION, 715, c"an illegal instruction was encountered"),
    row!(MISALIGNED_ADDRESS, 716, c"misaligned address"),
    row!(INVALID_ADDRESS_SPACE, 717, c"operation not supported on this address space"),
    row!(INVALID_PC, 718, c"invalid program counter"),
    row!(UNKNOWN, 999, c"unknown error"),
];

/// Name and description of a code.
pub(super) fn texts(code: i32) -> Option<(&'static CStr, &'static CStr)> {
    let found = TABLE.iter().chain(MORE).find(|(number, ..)| *number == code);
    found
        .and_then(|(_, name, text)| Some((CStr::from_bytes_with_nul(name.as_bytes()).ok()?, *text)))
}

/// True if this error is sticky: the context never recovers from it.
pub(super) fn is_sticky(code: i32) -> bool {
    matches!(code, 214 | 220 | 700 | 702 | 710 | 714..=719)
}
