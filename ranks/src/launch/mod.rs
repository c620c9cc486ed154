//! Determines this process's rank from the variables of its launcher.

use std::fmt;

use crate::error::RanksError;

/// The program that started the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// No launcher: a single process.
    None,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// MPICH's or Intel MPI's `mpiexec`.
    Pmi,
    /// `srun`.
    Slurm,
    /// `torchrun`, or any program that sets its variables.
    Torchrun,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no launcher",
            Self::OpenMpi => "mpirun (Open MPI)",
            Self::Pmi => "mpiexec (PMI)",
            Self::Slurm => "srun",
            Self::Torchrun => "torchrun variables",
        })
    }
}

impl Launcher {
    /// Advice for a message: how to run a single process even though this launcher's variables are
    /// set.
    pub fn single_process_hint(self) -> String {
        let own = VARIABLES.iter().find(|of| of.launcher == self && self != Self::Slurm);
        own.map_or(format!("unset {SLURM_STEP}"), |of| {
            format!("unset {} and {}", of.rank, of.ranks)
        })
    }
}

/// The rank of this process in its run and on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// This process's number.
    pub rank: usize,
    /// The number of processes of the run.
    pub ranks: usize,
    /// This process's number on its host.
    pub local_rank: usize,
    /// The number of the run's processes on this host.
    pub local_ranks: usize,
    /// The program that started the processes.
    pub launcher: Launcher,
}

/// Names of a launcher's variables; `local` names the rank and the number of ranks on the host.
struct Variables {
    launcher: Launcher,
    rank: &'static str,
    ranks: &'static str,
    local: [&'static str; 2],
}

/// The variables of all launchers, in the order in which they are checked.
const VARIABLES: [Variables; 4] = [
    Variables {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        local: ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    Variables {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        ranks: "PMI_SIZE",
        local: ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
    },
    Variables {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        ranks: "SLURM_NTASKS",
        local: ["SLURM_LOCALID", SLURM_PER_NODE],
    },
    Variables {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        ranks: "WORLD_SIZE",
        local: ["LOCAL_RANK", "LOCAL_WORLD_SIZE"],
    },
];

/// The id of a Slurm step. `SLURM_NTASKS` may count the tasks of the entire allocation, not of the
/// step.
const SLURM_STEP: &str = "SLURM_STEP_ID";
const SLURM_STEP_TASKS: &str = "SLURM_STEP_NUM_TASKS";
/// The first id of steps that srun did not start, such as batch scripts and interactive shells.
const FIRST_SPECIAL_STEP: u64 = 0xFFFF_FFF0;

/// Tasks per node, such as `4(x2),3`.
const SLURM_PER_NODE: &str = "SLURM_STEP_TASKS_PER_NODE";

/// Maximum number of ranks, so that the list of ranks fits in one frame.
const MAX_RANKS: usize = 4096;

type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Launch {
    /// One process.
    pub fn single() -> Self {
        Self { rank: 0, ranks: 1, local_rank: 0, local_ranks: 1, launcher: Launcher::None }
    }

    /// Reads the environment of this process.
    ///
    /// # Errors
    /// If a launcher's variables are incomplete, not numbers, or contradict each other.
    pub fn from_env() -> Result<Self, RanksError> {
        Self::from(&|name| std::env::var(name).ok())
    }

    /// Reads the variables returned by `lookup`. The first launcher with more than one process is
    /// used: a launcher with a single process may have started a second launcher.
    ///
    /// # Errors
    /// As for [`Launch::from_env`].
    pub fn from(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, RanksError> {
        let read = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let mut order: Vec<&Variables> = VARIABLES.iter().collect();
        // With `srun torchrun ..` the inner launcher is torchrun, which sets this variable.
        if read("TORCHELASTIC_RUN_ID").is_some() {
            order.rotate_right(1);
        }
        // A job's script and shell also have Slurm's variables, although srun did not start them;
        // and mpirun starts its daemons with srun.
        let is_step = read(SLURM_STEP).is_some_and(|step| {
            step.trim().parse().is_ok_and(|step: u64| step < FIRST_SPECIAL_STEP)
        });
        let is_of_srun = is_step && read(VARIABLES[0].ranks).is_none();
        for variables in order {
            if variables.launcher == Launcher::Slurm && !is_of_srun {
                continue;
            }
            if let Some(launch) = variables.read(&read)?
                && launch.ranks > 1
            {
                return Ok(launch);
            }
        }
        Ok(Self::single())
    }

    /// True if all ranks run on this host.
    pub(crate) fn on_one_node(&self) -> bool {
        self.local_ranks == self.ranks
    }
}

impl Variables {
    /// `None` if neither the rank nor the number of ranks is set.
    fn read(&self, read: Read<'_>) -> Result<Option<Launch>, RanksError> {
        let is_step = self.launcher == Launcher::Slurm && read(SLURM_STEP_TASKS).is_some();
        let name = if is_step { SLURM_STEP_TASKS } else { self.ranks };
        let Some((rank, ranks)) = pair(read, self.rank, name)? else { return Ok(None) };
        let (rank, ranks) = (number(self.rank, &rank)?, number(name, &ranks)?);
        below([self.rank, name], rank, ranks)?;
        if ranks > MAX_RANKS {
            return fault(format!("{name} is {ranks}; a run has at most {MAX_RANKS} ranks"));
        }
        let (local_rank, local_ranks) = self.local(read)?;
        below(self.local, local_rank, local_ranks)?;
        if local_ranks > ranks {
            let (local, all) = (self.local[1], name);
            return fault(format!(
                "{local} (ranks on this host) is {local_ranks}, but {all} (all ranks) is {ranks}; \
                 set {local} to at most {ranks}"
            ));
        }
        let launcher = self.launcher;
        Ok(Some(Launch { rank, ranks, local_rank, local_ranks, launcher }))
    }

    /// Local rank and number of local ranks. Without these variables, one process per host is
    /// assumed, as with containers.
    fn local(&self, read: Read<'_>) -> Result<(usize, usize), RanksError> {
        let [rank, ranks] = self.local;
        let Some((local_rank, local_ranks)) = pair(read, rank, ranks)? else { return Ok((0, 1)) };
        let local_ranks = match self.launcher {
            Launcher::Slurm => tasks_of_node(&local_ranks, read("SLURM_NODEID"))?,
            _ => number(ranks, &local_ranks)?,
        };
        Ok((number(rank, &local_rank)?, local_ranks))
    }
}

/// Two variables that must be set together.
fn pair(read: Read<'_>, first: &str, second: &str) -> Result<Option<(String, String)>, RanksError> {
    let half = |set: &str, value: &str, missing: &str| {
        fault(format!(
            "{set} is set ({value}) but {missing} is not; set both, as the launcher does, or unset \
             {set} to run one process"
        ))
    };
    match (read(first), read(second)) {
        (None, None) => Ok(None),
        (Some(a), Some(b)) => Ok(Some((a, b))),
        (Some(a), None) => half(first, &a, second),
        (None, Some(b)) => half(second, &b, first),
    }
}

fn number(name: &str, value: &str) -> Result<usize, RanksError> {
    let value = value.trim();
    value.parse().or_else(|_| fault(format!("{name} is `{value}`; set it to an integer")))
}

fn below([name, of]: [&str; 2], value: usize, count: usize) -> Result<(), RanksError> {
    if value < count {
        return Ok(());
    }
    fault(format!(
        "{name} is {value} and {of} is {count}; {name} counts from 0 and must be less than {of}"
    ))
}

/// The number of Slurm tasks on this node, from a list such as `4(x2),3`.
fn tasks_of_node(list: &str, node: Option<String>) -> Result<usize, RanksError> {
    let node = node.map_or(Ok(0), |node| number("SLURM_NODEID", &node))?;
    let wrong = || {
        fault(format!(
            "{SLURM_PER_NODE} is `{list}`, which has no number of tasks for node {node}; start the \
             ranks with srun, which sets it"
        ))
    };
    let mut before = 0;
    for part in list.split(',') {
        let (tasks, nodes) = match part.trim().split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.trim_end_matches(')').parse().ok()),
            None => (part.trim(), Some(1usize)),
        };
        let (Ok(tasks), Some(nodes)) = (tasks.parse(), nodes) else { return wrong() };
        before = usize::saturating_add(before, nodes);
        if node < before {
            return Ok(tasks);
        }
    }
    wrong()
}

fn fault<T>(message: String) -> Result<T, RanksError> {
    Err(RanksError::Launcher(message))
}

#[cfg(test)]
mod tests;
