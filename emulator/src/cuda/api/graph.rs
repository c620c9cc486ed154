//! Graphs.

use std::sync::Arc;

use super::{Out, api};
use crate::cuda::capture;
use crate::cuda::errors::*;
use crate::cuda::graph::Exec;
use crate::cuda::state::{Step, find, lock, new_handle, take};
use crate::cuda::work::{Handle, Mark, Work};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`.
const NODE_PRIORITY: u64 = 8;

api! {
    /// Instantiates a graph.
    fn cuGraphInstantiateWithFlags(exec: Out<Handle>, graph: Handle, flags: u64) in context {
        if flags & !NODE_PRIORITY != 0 {
            return Err(misuse(INVALID_VALUE, format!("flags {flags} are not modelled")));
        }
        let nodes = find(&mut context.graphs, "graph", graph)?.clone();
        let handle = new_handle();
        context.execs.insert(handle, Exec { nodes, last: None });
        exec.put(handle)
    }

    /// Destroys a graph. Executable graphs created from it stay valid.
    fn cuGraphDestroy(graph: Handle) {
        let mut state = lock();
        let context = state.context()?;
        take(&mut context.graphs, "graph", graph)?;
        context.check()
    }

    /// Uploads a graph to the device.
    fn cuGraphUpload(exec: Handle, stream: Handle) in context {
        find(&mut context.execs, "exec", exec)?;
        capture::forbid(context, stream, "a graph is uploaded during capture")?;
        capture::submit(context, stream, Work::Nothing)
    }

    /// Launches an executable graph. The launch begins after the previous launch of the same graph
    /// has ended.
    fn cuGraphLaunch(exec: Handle, stream: Handle) in context {
        find(&mut context.execs, "exec", exec)?;
        capture::forbid(context, stream, "a graph is launched during capture")?;
        let end = Arc::new(Mark::default());
        let exec = find(&mut context.execs, "exec", exec)?;
        let earlier = exec.last.replace(end.clone());
        let step = Step::Graph { nodes: exec.nodes.clone(), earlier, end };
        context.push(stream, step)
    }

    /// Destroys an executable graph. A running launch completes first.
    fn cuGraphExecDestroy(exec: Handle) {
        let mut state = lock();
        let context = state.context()?;
        take(&mut context.execs, "exec", exec)?;
        context.check()
    }
}
