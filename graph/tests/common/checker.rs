//! Checks that a memory plan is valid, using only the streams and waits of the launches: it shares
//! no code with the planner and does not use [`Schedule::happens_before`].

use graph::{Plan, Program, Schedule, TensorId};
use kernels::TensorDesc;

/// A range of the arena owned by a value or by scratch memory, and the launches that access it.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) what: String,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) users: Vec<usize>,
    pub(crate) kept: bool,
}

/// The regions of all values and of all launches' scratch memory according to `plan`.
pub(crate) fn regions(program: &Program, schedule: &Schedule, plan: &Plan) -> Vec<Region> {
    let node = |i: usize| &program.nodes()[schedule.launches()[i].node.index()];
    let launches = 0..schedule.launches().len();
    let descs = |list: &[TensorId]| -> Vec<TensorDesc> {
        list.iter().map(|t| program.desc(*t).clone()).collect()
    };
    let mut regions = Vec::new();
    for i in launches.clone() {
        let n = node(i);
        let scratch = 4 * n.op.cpu_workspace_len(&descs(&n.inputs), &descs(&n.outputs));
        if scratch > 0 {
            let offset = plan.workspace_offset(i).expect("scratch is planned");
            let what = format!("scratch of {i}");
            regions.push(Region { what, offset, bytes: scratch, users: vec![i], kept: false });
        }
        for t in &n.outputs {
            let touches = |j: &usize| node(*j).inputs.contains(t) || node(*j).outputs.contains(t);
            regions.push(Region {
                what: format!("tensor {}", t.index()),
                offset: plan.offset(*t).expect("a value is planned"),
                bytes: program.desc(*t).cpu_bytes(),
                users: launches.clone().filter(touches).collect(),
                kept: program.kept().contains(t),
            });
        }
    }
    regions
}

/// Names two regions that overlap although both are alive at once in an order that the schedule
/// allows.
pub(crate) fn first_clash(regions: &[Region], schedule: &Schedule) -> Option<String> {
    let reach = reachable(schedule);
    let ends_before = |a: &Region, b: &Region| {
        !a.kept && a.users.iter().all(|x| b.users.iter().all(|y| reach[*x][*y]))
    };
    for (i, a) in regions.iter().enumerate() {
        for b in &regions[..i] {
            let overlap = a.bytes > 0
                && b.bytes > 0
                && a.offset < b.offset + b.bytes
                && b.offset < a.offset + a.bytes;
            if overlap && !ends_before(a, b) && !ends_before(b, a) {
                return Some(format!("{} and {}", a.what, b.what));
            }
        }
    }
    None
}

/// `reach[a][b]` is true if launch `b` is ordered after `a` by streams and waits, directly or
/// indirectly.
fn reachable(schedule: &Schedule) -> Vec<Vec<bool>> {
    let launches = schedule.launches();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); launches.len()];
    for (i, launch) in launches.iter().enumerate() {
        if let Some(j) = (i + 1..launches.len()).find(|j| launches[*j].stream == launch.stream) {
            next[i].push(j);
        }
        for w in &launch.waits {
            next[*w].push(i);
        }
    }
    let from = |start: usize| {
        let mut seen = vec![false; launches.len()];
        let mut open = next[start].clone();
        while let Some(i) = open.pop() {
            if !std::mem::replace(&mut seen[i], true) {
                open.extend(&next[i]);
            }
        }
        seen
    };
    (0..launches.len()).map(from).collect()
}
