//! Tests of [`super`]: tiny campaigns of a shell instead of xtask.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const ONCE: Campaign = Campaign { name: "once", words: "true", short: "", repeats: false };
const MANY: Campaign =
    Campaign { name: "many", words: "true {seed} {next}10 {sum}10", short: "", repeats: true };
const BROKEN: Campaign = Campaign { name: "broken", words: "false", short: "", repeats: false };

fn options(hours: f64) -> Options {
    Options { hours, is_short: false, only: None, report: None }
}

/// Runs campaigns whose first word is a shell command that writes a line first. Every part counts
/// as half an hour, so that rounds end without waiting.
fn night(directory: &Path, campaigns: &[&Campaign], hours: f64) -> State {
    fs::create_dir_all(directory).unwrap();
    let options = options(hours);
    let order = Order { campaigns, options: &options, directory };
    let mut state = State::load(&directory.join("state"), "0123").unwrap();
    let start = |words: &[String]| {
        let mut shell = Command::new("sh");
        let runs = directory.join("runs");
        let script = format!("echo \"$0 $*\" >> {}; echo a line; $1", runs.display());
        shell.args(["-c", &script]).args(words);
        Ok(shell)
    };
    order.run_rounds(&mut state, &start).unwrap();
    state
}

fn runs(directory: &Path) -> usize {
    fs::read_to_string(directory.join("runs")).unwrap_or_default().lines().count()
}

fn directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("nightly-{name}-{}", std::process::id()))
}

#[test]
fn finished_parts_are_not_run_again_after_an_interruption() {
    let directory = directory("resume");
    let state = night(&directory, &[&ONCE, &MANY], 0.0);
    assert_eq!(state.parts().len(), 2);
    assert!(state.parts().iter().all(|part| part.ended == Ended::Passed && part.last == "a line"));
    // The machine stopped while the last line was written.
    let file = directory.join("state");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 3]).unwrap();
    let state = night(&directory, &[&ONCE, &MANY], 0.0);
    assert_eq!((state.parts().len(), runs(&directory)), (2, 3), "only the last part ran again");
    let state = night(&directory, &[&ONCE, &MANY], 0.0);
    assert_eq!((state.parts().len(), runs(&directory)), (2, 3));
    // Another commit begins anew.
    assert!(State::load(&file, "4567").unwrap().parts().is_empty());
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_part_that_fails_stops_no_other_and_fails_the_night() {
    let directory = directory("fails");
    let state = night(&directory, &[&BROKEN, &ONCE], 0.0);
    let parts: Vec<&Part> = state.parts().iter().collect();
    assert_eq!(parts.len(), 2);
    let failure = verdict(&parts).unwrap_err().to_string();
    assert!(failure.contains("broken (round 1)") && !failure.contains("once"), "{failure}");
    let report = report(&parts);
    assert!(report.starts_with("2 parts, 1 failed, 0 skipped in part, "), "{report}");
    assert!(report.contains("| broken | 1 | `false` | failed | "), "{report}");
    assert!(verdict(&parts[1..]).is_ok());
    // The failure is not forgotten by running the command once more.
    let state = night(&directory, &[&BROKEN, &ONCE], 0.0);
    assert!(verdict(&state.parts().iter().collect::<Vec<_>>()).is_err());
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_part_with_a_stage_that_was_not_run_is_reported_as_skipped() {
    let directory = directory("skipped");
    fs::create_dir_all(&directory).unwrap();
    let script = directory.join("stage");
    fs::write(&script, "#!/bin/sh\necho 'NOT RUN: there is no newer etcd'\necho the rest\n")
        .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let stage = Campaign { name: "stage", words: "{directory}/stage", short: "", repeats: false };
    for _ in 0..2 {
        // The second time from the file of states.
        let state = night(&directory, &[&stage], 0.0);
        let parts: Vec<&Part> = state.parts().iter().collect();
        assert_eq!(parts[0].ended, Ended::Skipped, "{parts:?}");
        let report = report(&parts);
        assert!(report.starts_with("1 parts, 0 failed, 1 skipped in part, "), "{report}");
        assert!(report.contains("| skipped in part | "), "{report}");
        assert!(verdict(&parts).is_ok());
    }
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn rounds_are_repeated_until_the_time_is_used() {
    let directory = directory("rounds");
    fs::create_dir_all(&directory).unwrap();
    // Two parts of half an hour each are on record.
    let mut state = State::load(&directory.join("state"), "0123").unwrap();
    for (campaign, round) in [(&ONCE, 0), (&MANY, 0), (&MANY, 1)] {
        let words = campaign.words(round, false, &directory);
        let name = campaign.name.to_owned();
        let part =
            Part { name, round, words, ended: Ended::Passed, seconds: 1_800, last: String::new() };
        state.add(part).unwrap();
    }
    assert_eq!(night(&directory, &[&ONCE, &MANY], 1.5).parts().len(), 3);
    assert_eq!(runs(&directory), 0);
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn every_round_has_its_own_seeds() {
    let words = |round| MANY.words(round, false, Path::new("/d")).join(" ");
    assert_eq!(words(0), "true 20261115 0 10");
    assert_eq!(words(2), "true 20261117 20 30");
}

#[test]
fn every_campaign_has_a_command() {
    for campaign in CAMPAIGNS {
        let command = campaign.name.split(' ').next();
        let exists = command.and_then(crate::find).is_some();
        assert!(exists, "{}", campaign.name);
        for is_short in [true, false] {
            let words = campaign.words(1, is_short, Path::new("/d")).join(" ");
            assert!(!words.contains('{'), "{words}");
        }
    }
}

#[test]
fn arguments_are_checked() {
    let parsed = |text: &str| {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        parse(&words).ok()
    };
    assert_eq!(parsed("--hours 8"), Some(options(8.0)));
    let short = parsed("--hours 0.5 --short --only sim --report f").unwrap();
    assert_eq!((short.is_short, short.only.as_deref()), (true, Some("sim")));
    for bad in ["", "--hours", "--hours x", "--hours -1", "--hours 1 --short", "--hours 1 --only x"]
    {
        assert_eq!(parsed(bad), None, "{bad}");
    }
    assert_eq!(parsed("--hours 1 --only sim"), None, "an incomplete night is not saved");
}

#[test]
fn the_last_line_fits_a_cell() {
    assert_eq!(last_line("a\n| 1 | 2 |\n\n"), "1 · 2");
    assert_eq!(last_line(""), "");
    assert_eq!(last_line(&"x".repeat(500)).len(), LAST_LINE_MAX);
}
