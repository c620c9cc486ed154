//! `libnccl.so.2` for tests: all-reduces between processes, on the streams of the emulated driver.
//!
//! For tests only, and never linked by onegraph. Ranks are connected by TCP in a star around rank
//! 0, and sums are in rank order, so all ranks get bit-identical results. It is stricter than NCCL:
//! calls that would hang or corrupt data in NCCL return an error, and add a line to the file in
//! `DRIVER_REPORT`.
//!
//! | variable | meaning |
//! |---|---|
//! | `DRIVER_REPORT` | the file that gets a line for each finding; not created without findings |
//! | `NCCL_TEST_VERSION` | the version in the format of `ncclGetVersion`; default 22907 |
//! | `NCCL_TEST_PLANT` | injected faults, comma-separated; `RANK/` before one limits it to a rank |
//! | `NCCL_RUNTIME_CONNECT` | unless 0, and from 2.22 on: the first all-reduce of a size connects |
//! | `NCCL_MULTI_RANK_GPU_ENABLE` | 1 lets ranks share a GPU |
//! | `NCCL_SOCKET_IFNAME`, `NCCL_HOSTID` | as in NCCL |
//!
//! | fault | effect |
//! |---|---|
//! | `init:never` | the rank never joins |
//! | `sum:N=hang` | the N-th execution of an all-reduce does not end until the rank leaves |
//! | `sum:N=error` | the same, and the communicator reports an error |
//! | `sum:N=die` | the process aborts instead |
//! | `abort:hang` | `ncclCommAbort` ends the all-reduces, and does not return |
//! | `FUNCTION:N=CODE` | the N-th call of a function returns the code and has no effect |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod add;
mod api;
mod group;
mod hook;
mod injection;
mod interface;
mod rendezvous;
mod report;
mod wire;

pub use api::{
    Raw, ncclAllReduce, ncclCommAbort, ncclCommGetAsyncError, ncclCommInitRank, ncclGetErrorString,
    ncclGetLastError, ncclGetUniqueId, ncclGetVersion,
};
pub use hook::{Call, Declared, Driver, use_driver};
pub use rendezvous::UniqueId;
