//! `ONEGRAPH_LOG` makes a run print its decisions; by default it prints none.

mod common;

use common::{BAD_CONFIG, Place, Said, micro, said};

/// A short training run with the variable set to `level`.
fn train(level: Option<&str>) -> Said {
    let place = Place::new();
    let arguments = micro("--device cpu --set train.steps=2 --set train.run_dir=runs/log");
    let mut command = place.command(&arguments);
    command.env_remove("ONEGRAPH_LOG");
    if let Some(level) = level {
        command.env("ONEGRAPH_LOG", level);
    }
    said(&mut command)
}

fn is_event(line: &str) -> bool {
    [" INFO ", " DEBUG "].iter().any(|level| line.contains(level))
}

#[test]
fn log_level_prints_decisions() {
    let decisions = [
        "opened a store",
        "resolved the config from=micro",
        "runs on the CPU: --device cpu",
        "evaluates step=2",
        "stops: all steps are done",
        "wrote a checkpoint",
    ];
    let details = ["built a program", "planned a program", "loading begins"];
    for (level, decided, detailed) in [
        (Some("debug"), true, true),
        (Some("info"), true, false),
        (Some("off"), false, false),
        (Some(""), false, false),
        (None, false, false),
    ] {
        let Said { code, err, .. } = train(level);
        assert_eq!(code, 0, "{err}");
        let logged = |event: &&str| err.lines().any(|line| is_event(line) && line.contains(event));
        assert!(decisions.iter().all(|event| logged(event) == decided), "{level:?}: {err}");
        assert!(details.iter().all(|event| logged(event) == detailed), "{level:?}: {err}");
        assert!(decided || !err.lines().any(is_event), "{level:?}: {err}");
    }
}

#[test]
fn unknown_log_level_prints_one_line_error() {
    let Said { code, err, .. } = train(Some("loud"));
    assert_eq!(code, BAD_CONFIG, "{err}");
    assert_eq!(err, "error: ONEGRAPH_LOG is `loud`; set it to off, info or debug\n");
}
