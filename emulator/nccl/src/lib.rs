//! `libnccl.so.2` for tests: sums between processes, on the streams of the test driver.
//!
//! For tests only, and never linked by the product. A star of TCP connections through rank 0
//! carries the sums, which are added in rank order, so that all ranks get the same bits. It is
//! stricter than NCCL: what would hang or corrupt there is a line in the file that `DRIVER_REPORT`
//! names, and an error.
//!
//! | variable | meaning |
//! |---|---|
//! | `DRIVER_REPORT` | the file that gets a line for each finding; nothing found, nothing written |
//! | `NCCL_TEST_VERSION` | the version, as `ncclGetVersion` counts; 22907 if not set |
//! | `NCCL_TEST_PLANT` | faults, with commas between; `RANK/` before one keeps it to that rank |
//! | `NCCL_RUNTIME_CONNECT` | unless 0, and from 2.22 on: the first sum of a size connects late |
//! | `NCCL_MULTI_RANK_GPU_ENABLE` | 1 lets ranks share a GPU |
//! | `NCCL_SOCKET_IFNAME`, `NCCL_HOSTID` | as NCCL's |
//!
//! | fault | what happens |
//! |---|---|
//! | `init:never` | the rank never joins |
//! | `sum:N=hang` | the N-th execution of a sum does not end until the rank leaves |
//! | `sum:N=error` | the same, and the communicator reports an error |
//! | `sum:N=die` | the process aborts instead |
//! | `abort:hang` | `ncclCommAbort` ends the sums, and does not return |
//! | `FUNCTION:N=CODE` | the N-th call of a function returns the code, and does nothing |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod add;
mod api;
mod group;
mod hook;
mod interface;
mod meeting;
mod plant;
mod report;
mod wire;

pub use api::{
    Raw, ncclAllReduce, ncclCommAbort, ncclCommGetAsyncError, ncclCommInitRank, ncclGetErrorString,
    ncclGetLastError, ncclGetUniqueId, ncclGetVersion,
};
pub use hook::{Call, Declared, Driver, use_driver};
pub use meeting::UniqueId;
