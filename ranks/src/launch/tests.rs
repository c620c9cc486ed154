//! The variables of each launcher: complete, incomplete and contradictory.

use super::{Launch, Launcher};

fn read(variables: &str) -> Result<Launch, String> {
    let lookup = |name: &str| {
        let set = variables.split(' ').filter_map(|pair| pair.split_once('='));
        set.clone().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    Launch::from(&lookup).map_err(|error| error.to_string())
}

#[test]
fn every_launcher_is_detected() {
    for (variables, launcher, [rank, ranks, local_rank, local_ranks]) in [
        (
            "OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_SIZE=16 OMPI_COMM_WORLD_LOCAL_RANK=1 \
             OMPI_COMM_WORLD_LOCAL_SIZE=8",
            Launcher::OpenMpi,
            [9, 16, 1, 8],
        ),
        ("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", Launcher::Pmi, [1, 2, 1, 2]),
        (
            "SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_NODEID=1 \
             SLURM_STEP_TASKS_PER_NODE=4,3",
            Launcher::Slurm,
            [5, 7, 1, 3],
        ),
        (
            "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_NODEID=1 \
             SLURM_STEP_TASKS_PER_NODE=4(x2)",
            Launcher::Slurm,
            [5, 8, 1, 4],
        ),
        // A Slurm step with only some of the allocation's tasks.
        (
            "SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_STEP_ID=3 \
             SLURM_STEP_TASKS_PER_NODE=2",
            Launcher::Slurm,
            [1, 2, 1, 2],
        ),
        ("RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4", Launcher::Torchrun, [3, 4, 3, 4]),
        // One process per container.
        ("RANK=3 WORLD_SIZE=4", Launcher::Torchrun, [3, 4, 0, 1]),
        // Nested launchers.
        (
            "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_ID=0 \
             SLURM_STEP_TASKS_PER_NODE=1(x2) TORCHELASTIC_RUN_ID=x RANK=3 WORLD_SIZE=4",
            Launcher::Torchrun,
            [3, 4, 0, 1],
        ),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_STEP_ID=0 \
             SLURM_STEP_TASKS_PER_NODE=1 RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
            Launcher::Torchrun,
            [1, 2, 1, 2],
        ),
        (
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=4",
            Launcher::OpenMpi,
            [1, 2, 0, 1],
        ),
    ] {
        let expected = Launch { rank, ranks, local_rank, local_ranks, launcher };
        assert_eq!(read(variables), Ok(expected), "{variables}");
    }
}

#[test]
fn single_process_needs_no_launcher() {
    for variables in [
        "",
        "RANK=0 WORLD_SIZE=1",
        "RANK= WORLD_SIZE=",
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
        // A batch script, outside of srun.
        "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0",
        // The shell of an allocation, recognised by its single task or by its step id; and a single
        // process of mpirun.
        "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 \
         SLURM_STEP_TASKS_PER_NODE=1",
        "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=4294967290",
        "SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 \
         SLURM_STEP_TASKS_PER_NODE=1(x2) OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
    ] {
        assert_eq!(read(variables), Ok(Launch::single()), "{variables}");
    }
}

#[test]
fn invalid_variable_error_has_name_value_and_fix() {
    for (variables, said) in [
        ("RANK=1", "RANK is set (1) but WORLD_SIZE is not; set both"),
        ("WORLD_SIZE=2", "WORLD_SIZE is set (2) but RANK is not; set both"),
        ("RANK=x WORLD_SIZE=2", "RANK is `x`; set it to an integer"),
        ("RANK=0 WORLD_SIZE=-2", "WORLD_SIZE is `-2`; set it to an integer"),
        ("RANK=2 WORLD_SIZE=2", "RANK is 2 and WORLD_SIZE is 2; RANK counts from 0"),
        ("RANK=0 WORLD_SIZE=0", "RANK is 0 and WORLD_SIZE is 0"),
        ("RANK=0 WORLD_SIZE=9999999", "WORLD_SIZE is 9999999; a run has at most"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", "LOCAL_RANK is set (0) but LOCAL_WORLD_SIZE is not"),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4",
            "LOCAL_WORLD_SIZE (ranks on this host) is 4, but WORLD_SIZE (all ranks) is 2",
        ),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
            "LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2",
        ),
        ("OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is not"),
        ("PMI_RANK=1", "PMI_RANK is set (1) but PMI_SIZE is not"),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_NODEID=2 \
             SLURM_STEP_TASKS_PER_NODE=1(x2)",
            "SLURM_STEP_TASKS_PER_NODE is `1(x2)`, which has no number of tasks for node 2",
        ),
    ] {
        let error = read(variables).expect_err(variables);
        assert!(error.contains(said), "{variables}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
