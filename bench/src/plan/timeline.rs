//! A timeline of tasks on streams that share one GPU.
//!
//! A task has a duration and a share of the GPU, both valid when nothing else runs. Concurrent
//! tasks run at full speed while their shares add up to at most 1; above that they slow each other
//! down. Thus small grids overlap, while two tasks that each fill the GPU take as long as if they
//! ran one after another.

/// A task of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Task {
    /// Index of the stream; a stream runs its tasks in list order.
    pub(super) stream: usize,
    /// Duration when nothing else runs.
    pub(super) ms: f64,
    /// Fraction of the GPU that the task uses without other tasks, 0 to 1.
    pub(super) share: f64,
    /// True if the task is never slowed down: a collective, whose blocks stay resident.
    pub(super) keeps: bool,
    /// Indices of the tasks on other streams that the task waits for.
    pub(super) waits: Vec<usize>,
}

/// Start and end of a task, in milliseconds from the start of the step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Span {
    pub(super) start: f64,
    pub(super) end: f64,
}

/// A task whose remaining milliseconds are at most this is complete; absorbs rounding errors.
const NOTHING: f64 = 1e-12;

/// Runs all tasks. Panics if they have a dependency cycle.
pub(super) fn simulate(tasks: &[Task]) -> Vec<Span> {
    let streams = tasks.iter().map(|task| task.stream + 1).max().unwrap_or(0);
    let mut queues: Vec<std::collections::VecDeque<usize>> = vec![Default::default(); streams];
    for (position, task) in tasks.iter().enumerate() {
        queues[task.stream].push_back(position);
    }
    let mut spans = vec![Span::default(); tasks.len()];
    let mut done = vec![false; tasks.len()];
    // Task index and remaining milliseconds.
    let mut running: Vec<(usize, f64)> = Vec::new();
    let mut now = 0.0;
    while queues.iter().any(|queue| !queue.is_empty()) {
        for head in queues.iter().filter_map(|queue| queue.front().copied()) {
            let is_running = running.iter().any(|(position, _)| *position == head);
            if !is_running && tasks[head].waits.iter().all(|wait| done[*wait]) {
                spans[head].start = now;
                running.push((head, tasks[head].ms));
            }
        }
        assert!(!running.is_empty(), "tasks that wait for each other");
        let speed = speeds(tasks, &running);
        let left = running.iter().zip(&speed).map(|((_, ms), speed)| ms / speed);
        let step = left.fold(f64::INFINITY, f64::min);
        now += step;
        for ((_, ms), speed) in running.iter_mut().zip(&speed) {
            *ms -= step * speed;
        }
        running.retain(|&(position, ms)| {
            if ms > NOTHING {
                return true;
            }
            spans[position].end = now;
            done[position] = true;
            queues[tasks[position].stream].pop_front();
            false
        });
    }
    spans
}

/// Speed of each running task, 1 if nothing slows it.
fn speeds(tasks: &[Task], running: &[(usize, f64)]) -> Vec<f64> {
    let share = |keeps: bool| -> f64 {
        let ours = running.iter().map(|(position, _)| &tasks[*position]);
        ours.filter(|task| task.keeps == keeps).map(|task| task.share).sum()
    };
    let (kept, wanted) = (share(true), share(false));
    let rest = ((1.0 - kept) / wanted).clamp(0.05, 1.0);
    running.iter().map(|(position, _)| if tasks[*position].keeps { 1.0 } else { rest }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(stream: usize, ms: f64, share: f64, waits: &[usize]) -> Task {
        Task { stream, ms, share, keeps: false, waits: waits.to_vec() }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn streams_overlap_until_gpu_is_full() {
        let end = |shares: [f64; 2]| {
            let tasks = [task(0, 4.0, shares[0], &[]), task(1, 2.0, shares[1], &[])];
            simulate(&tasks).iter().map(|span| span.end).fold(0.0, f64::max)
        };
        assert!(close(end([0.5, 0.5]), 4.0), "both fit");
        assert!(close(end([1.0, 1.0]), 6.0), "as long as one after the other");
        // At 2/3 speed the short task takes 3 ms, in which the long one completes 2 of its 4 ms.
        assert!(close(end([1.0, 0.5]), 5.0));
    }

    #[test]
    fn overlapped_collective_keeps_its_speed() {
        let mut tasks = [task(0, 3.0, 1.0, &[]), task(1, 2.0, 0.25, &[])];
        tasks[1].keeps = true;
        let spans = simulate(&tasks);
        assert!(close(spans[1].end, 2.0));
        // The other task completes 1.5 of its 3 ms while the collective runs for 2 ms.
        assert!(close(spans[0].end, 3.5));
    }

    #[test]
    fn timeline_respects_waits_and_stream_order() {
        let tasks = [
            task(0, 1.0, 0.1, &[2]),
            task(0, 1.0, 0.1, &[]),
            task(1, 5.0, 0.1, &[]),
            task(1, 0.0, 0.0, &[]),
        ];
        let spans = simulate(&tasks);
        assert!(close(spans[0].start, 5.0) && close(spans[1].start, 6.0), "{spans:?}");
        assert_eq!(spans[3], Span { start: 5.0, end: 5.0 });
    }

    #[test]
    #[should_panic(expected = "wait for each other")]
    fn circular_wait_panics() {
        simulate(&[task(0, 1.0, 1.0, &[1]), task(1, 1.0, 1.0, &[0])]);
    }
}
