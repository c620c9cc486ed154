//! `libnccl.so.2` for tests: all-reduces between processes, on the streams of the emulated driver.
//!
//! This library is only for tests; onegraph never links it. Every rank is connected to rank 0 by
//! TCP. Rank 0 adds the contributions in rank order, so all ranks get bit-identical results. This
//! library is stricter than NCCL: calls that would hang or corrupt data in NCCL return an error,
//! and add a line to the file in `DRIVER_REPORT`.
//!
//! | variable | meaning |
//! |---|---|
//! | `DRIVER_REPORT` | file for findings, one per line; created by the first finding |
//! | `NCCL_TEST_VERSION` | the version in the format of `ncclGetVersion`; default 22907 |
//! | `NCCL_TEST_PLANT` | injected faults, comma-separated; prefix `RANK/`: only on this rank |
//! | `NCCL_RUNTIME_CONNECT` | unless 0: ranks connect at the first all-reduce of a size (2.22+) |
//! | `NCCL_MULTI_RANK_GPU_ENABLE` | 1 lets ranks share a GPU |
//! | `NCCL_SOCKET_IFNAME`, `NCCL_HOSTID` | as in NCCL |
//!
//! | fault | effect |
//! |---|---|
//! | `init:never` | the rank never joins |
//! | `sum:N=hang` | the N-th execution of an all-reduce does not end until the rank leaves |
//! | `sum:N=error` | like `sum:N=hang`, and the communicator reports an error |
//! | `sum:N=die` | the process aborts at the N-th execution |
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
