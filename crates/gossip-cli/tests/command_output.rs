//! The output of the commands of `gossip exec`: groups of whole lines, untouched bytes, terminals,
//! and commands that misbehave.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rstest::rstest;

use support::{Scratch, finish, is_alive, wait_until};
use terminal::{CTRL_C, CTRL_Z, Terminal};

const GOSSIP: &str = env!("CARGO_BIN_EXE_gossip");

/// Arguments of `exec` for a shell script that gets the item as `$1`.
fn exec<'a>(args: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["exec"], args, &["--", "sh", "-c", script, "sh", "{}"]].concat()
}

/// Returns what `run show` prints of the only run.
fn only_run(scratch: &Scratch) -> serde_json::Value {
    let listed = scratch.run(&["run", "list", "-o", "jsonl"]);
    let run: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let shown = scratch.run(&["run", "show", run["run"].as_str().unwrap(), "-o", "jsonl"]);
    serde_json::from_str(&shown.stdout).unwrap()
}

/// Starts `exec` on a terminal.
fn on_terminal(scratch: &Scratch, args: &[&str]) -> Terminal {
    let mut command = scratch.command(GOSSIP);
    command.env("TERM", "xterm");
    // A background job of a shell ignores SIGINT, and the commands would, too.
    Terminal::start(&command, &[&["env", "--default-signal", GOSSIP], args].concat())
}

#[test]
fn lines_of_parallel_commands_are_not_mixed() {
    let scratch = Scratch::new();
    let script = "for line in 1 2 3; do echo \"$1 $line\"; echo \"$1 $line\" >&2; sleep 0.01; done";
    let ran = scratch.run(&exec(&["range:0..40", "-j", "4", "-q"], script));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for text in [&ran.stdout, &ran.stderr] {
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 120, "{text}");
        let items: BTreeSet<&str> = lines
            .chunks(3)
            .map(|group| {
                let item = group[0].split(' ').next().unwrap();
                let expected: Vec<_> = (1..=3).map(|line| format!("{item} {line}")).collect();
                assert_eq!(group, expected, "{text}");
                item
            })
            .collect();
        assert_eq!(items.len(), 40);
    }
}

/// Every byte, among them NUL and such that are no text, and no final line feed.
#[test]
fn bytes_reach_a_pipe_untouched() {
    let scratch = Scratch::new();
    let script = "printf '\\000\\033]52;c;aGk=\\007\\377\\r\\n\\tx'";
    let output = scratch.gossip(&exec(&["range:0..2", "-q"], script)).output().unwrap();
    let each = b"\0\x1b]52;c;aGk=\x07\xff\r\n\tx";
    assert_eq!(output.stdout, [&each[..], each].concat());
}

#[test]
fn each_line_is_tagged_with_its_item() {
    let scratch = Scratch::new();
    let script = "echo a; printf b; echo c >&2";
    let ran = scratch.run(&exec(&["range:0..2", "-q", "-j", "1", "--tag"], script));
    assert_eq!(ran.stdout, "0\ta\n0\tb\n1\ta\n1\tb\n");
    assert_eq!(ran.stderr, "0\tc\n1\tc\n");
    let batch = ["exec", "range:0..6", "-q", "-j1", "--shards=1", "-b3", "--tag", "--", "echo"];
    let ran = scratch.run(&batch);
    assert_eq!(ran.stdout, "0 (+2)\t0 1 2\n3 (+2)\t3 4 5\n");
}

/// The command waits for its reader, who gets each line at once.
#[test]
fn ungrouped_output_is_passed_on_as_it_is_written() {
    let scratch = Scratch::new();
    let script = "echo first; while ! test -e go; do sleep 0.01; done; echo second";
    let mut child =
        scratch.gossip(&exec(&["range:0..1", "-q", "--ungroup"], script)).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    File::create(scratch.path().join("go")).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    assert_eq!(finish(child).code, Some(0));
}

/// A gibibyte of zeros, of which most is in a temporary file while the command runs.
#[test]
fn flood_is_kept_in_bounded_memory() {
    let scratch = Scratch::new();
    let script = "case $1 in 0) head -c 1G /dev/zero;; *) grep VmHWM /proc/$PPID/status >&2;; esac";
    let args = exec(&["range:0..2", "-j", "1", "--shards", "1", "-q"], script);
    let mut child = scratch.gossip(&args).spawn().unwrap();
    let (mut output, mut len) = (child.stdout.take().unwrap(), 0_u64);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = output.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        assert!(buffer[..read].iter().all(|byte| *byte == 0));
        len += read as u64;
    }
    let ran = finish(child);
    assert_eq!((ran.code, len), (Some(0), 1 << 30), "{}", ran.stderr);
    let peak: u64 = ran.stderr.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 64 * 1024, "{peak} KiB");
}

#[test]
fn output_that_cannot_be_kept_fails_its_item_with_the_reason() {
    let scratch = Scratch::new();
    let script = "case $1 in 1) yes;; *) echo $1;; esac";
    let mut command = scratch.gossip(&exec(&["range:0..3", "-j", "1", "--tries", "1"], script));
    let ran = finish(command.env("TMPDIR", "/no/such/directory").spawn().unwrap());
    // The bytes before are printed.
    assert_eq!((ran.code, ran.stdout.replace("y\n", "")), (Some(3), "0\n2\n".to_owned()));
    assert!(ran.stderr.contains("failed: 1: its output could not be kept: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("/no/such/directory"), "{}", ran.stderr);
}

/// The reader of the output has exited: nothing is recorded whose output is lost.
#[test]
fn closed_stdout_stops_the_run_and_fails_nothing() {
    let scratch = Scratch::new();
    let mut child =
        scratch.gossip(&exec(&["range:0..2000", "-j", "2"], "echo $1")).spawn().unwrap();
    drop(child.stdout.take());
    let ran = finish(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(ran.stderr.contains("output closed"), "{}", ran.stderr);
    let again = scratch.run(&exec(&["range:0..2000", "-j", "2"], "echo $1"));
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(again.stdout.lines().collect::<BTreeSet<_>>().len(), 2000);
}

/// `gossip exec --ungroup … | head -1`. The command writes to the pipe itself.
#[rstest]
#[case::by_a_signal("exec yes \"$1\"")]
#[case::by_a_status("(exec yes \"$1\"); echo $? >> statuses; exit 1")]
fn closed_output_of_ungrouped_commands_stops_the_run_and_fails_nothing(#[case] flood: &str) {
    let scratch = Scratch::new();
    // The reader takes the line of the third item and leaves.
    let script = format!("echo $1 >> begun; test -e all || test $1 -lt 2 || {{ {flood}; }}");
    let words = ["range:0..40", "-j", "1", "--shards", "1", "--tries", "1", "--ungroup"];
    let args = exec(&words, &script);
    let mut child = scratch.gossip(&args).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    drop(reader);
    let ran = finish(child);
    assert_eq!((line.as_str(), ran.code), ("2\n", Some(130)), "{}", ran.stderr);
    assert!(ran.stderr.contains("output closed"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("failed"), "{}", ran.stderr);
    // 128 and the number of SIGPIPE: the command holds the pipe and gossip is not between them.
    let is_noted = flood.contains("statuses");
    assert_eq!(scratch.lines("statuses").join(" "), if is_noted { "141" } else { "" });
    let run = only_run(&scratch);
    assert_eq!((&run["status"], &run["parked"]), (&"active".into(), &0.into()), "{run}");
    assert_eq!(run["keys"], 2, "{run}");

    File::create(scratch.path().join("all")).unwrap();
    let again = scratch.run(&args);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let begun: Vec<usize> = scratch.lines("begun").iter().map(|it| it.parse().unwrap()).collect();
    // Only the item whose output was not read is repeated.
    assert_eq!(begun, (0..3).chain(2..40).collect::<Vec<_>>());
}

#[test]
fn process_left_behind_is_reported_and_ends_nothing() {
    let scratch = Scratch::new();
    let script = "setsid sleep 300 & echo $! >> pids; echo \"$1\"";
    let begun = Instant::now();
    let ran = scratch.run(&exec(&["range:0..3", "-j", "1"], script));
    assert!(begun.elapsed() < Duration::from_secs(100));
    for pid in scratch.lines("pids") {
        Command::new("kill").args(["-9", &pid]).status().unwrap();
    }
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "0\n1\n2\n"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("left processes behind").count(), 1, "{}", ran.stderr);
}

#[test]
fn command_that_ignores_signals_is_killed_when_its_time_is_over() {
    let scratch = Scratch::new();
    let script = "trap '' TERM INT HUP; echo $$ >> pids; echo started; sleep 300 & wait; sleep 300";
    let args = ["range:0..1", "--tries", "1", "--timeout", "500ms"];
    let ran = scratch.run(&exec(&args, script));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "started\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("failed: 0: timed out and was killed"), "{}", ran.stderr);
    wait_until("its end", || scratch.lines("pids").iter().all(|pid| !is_alive(pid)));
}

#[test]
fn only_colors_reach_a_terminal() {
    let scratch = Scratch::new();
    let script = "printf '\\033[31mred\\033]52;c;aGk=\\007\\342\\200\\256\\n\\377\\tunended'";
    let terminal = on_terminal(&scratch, &exec(&["range:0..1", "-q"], script));
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    let expected = "\x1b[31mred\\u{1b}]52;c;aGk=\\u{7}\\u{202e}\r\n\\xff\tunended\x1b[0m\r\n";
    assert_eq!(screen, expected);
}

#[rstest]
#[case::terminal(&[], "1 1")]
#[case::no_color(&[("NO_COLOR", "1")], "unset unset")]
#[case::chosen_otherwise(&[("FORCE_COLOR", "0")], "0 1")]
fn commands_color_their_output_if_it_reaches_a_terminal(
    #[case] variables: &[(&str, &str)],
    #[case] expected: &str,
) {
    let script = "echo \"${FORCE_COLOR-unset} ${CLICOLOR_FORCE-unset}\"";
    let scratch = Scratch::new();
    let mut command = scratch.command(GOSSIP);
    command.env("TERM", "xterm").envs(variables.iter().copied());
    let args = [&[GOSSIP], exec(&["range:0..1", "-q"], script).as_slice()].concat();
    let (_, screen) = Terminal::start(&command, &args).finish();
    assert_eq!(screen, format!("{expected}\r\n"));
    let ran =
        finish(scratch.gossip(&exec(&["range:0..1", "-q", "--restart"], script)).spawn().unwrap());
    assert_eq!(ran.stdout, "unset unset\n");
}

#[test]
fn commands_get_no_settings_with_passwords() {
    let scratch = Scratch::new();
    let mut command = scratch.gossip(&exec(&["range:0..1", "-q"], "env"));
    command.env("GOSSIP_TENANT", "other").env("MY_TOKEN", "kept").env("PGHOST", "kept");
    command.envs(STORE_SECRETS);
    let ran = finish(command.spawn().unwrap());
    let has = |name: &str| ran.stdout.lines().any(|line| line.starts_with(name));
    assert!(has("MY_TOKEN=") && has("GOSSIP_TENANT=") && has("GOSSIP_FENCE="), "{}", ran.stdout);
    assert!(has("PGHOST=") && !has("GOSSIP_STORE="), "{}", ran.stdout);
    assert!(!has("GOSSIP_JOB_KEY_FILE="), "{}", ran.stdout);
    for (name, _) in STORE_SECRETS {
        assert!(!has(&format!("{name}=")), "{}", ran.stdout);
    }
}

/// Variables from which a password of a store is read.
const STORE_SECRETS: [(&str, &str); 3] =
    [("GOSSIP_ETCD_PASSWORD", "p"), ("PGPASSWORD", "p"), ("PGPASSFILE", "p")];

/// The git that is found first in `PATH` writes its environment into a file.
#[test]
fn git_gets_no_settings_with_passwords() {
    let scratch = Scratch::new();
    let git = |args: &[&str]| {
        let ran = scratch.command("git").args(args).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    git(&["init", "-q", "tree"]);
    scratch.file("file", "text\n");
    git(&["-C", "tree", "add", "file"]);
    let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    git(&[&["-C", "tree"], author.as_slice(), &["commit", "-q", "-m", "first"]].concat());
    let seen = scratch.path().join("seen");
    let path = std::env::var("PATH").unwrap();
    let script = format!("#!/bin/sh\nenv >> '{}'\nPATH='{path}' exec git \"$@\"\n", seen.display());
    let wrapper = scratch.path().join("bin/git");
    std::fs::create_dir(scratch.path().join("bin")).unwrap();
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).unwrap();
    let bin = wrapper.parent().unwrap().display();
    let mut command = scratch.gossip(&["exec", "git:tree", "-q", "--", "true", "{}"]);
    command.env("PATH", format!("{bin}:{path}")).envs(STORE_SECRETS).env("PGHOST", "kept");
    let ran = finish(command.spawn().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("PGHOST=kept") && !seen.contains("GOSSIP_STORE="), "{seen}");
    for (name, _) in STORE_SECRETS {
        assert!(!seen.contains(&format!("{name}=")), "{seen}");
    }
}

/// It would be stopped for ever if it had the terminal and were in the background.
#[test]
fn prompt_on_the_terminal_fails_at_once() {
    let scratch = Scratch::new();
    let args = exec(&["range:0..1", "--tries", "1"], "read answer < /dev/tty");
    let (code, screen) = on_terminal(&scratch, &args).finish();
    assert_eq!(code, Some(3), "{screen}");
    assert!(screen.contains("it asked for a terminal, and commands have none"), "{screen}");
}

/// It would take the foreground from gossip, which would be stopped when it draws.
#[test]
fn interactive_shell_does_not_take_the_terminal() {
    let scratch = Scratch::new();
    let args =
        ["exec", "range:0..3", "-j", "1", "--", "bash", "-i", "-c", "echo \"item $1\"", "sh", "{}"];
    let (code, screen) = on_terminal(&scratch, &args).finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!((0..3).all(|item| screen.contains(&format!("item {item}\r\n"))), "{screen}");
}

#[test]
fn command_with_the_terminal_reads_its_keys() {
    let scratch = Scratch::new();
    let script = "read answer; echo \"got $answer\"; read answer < /dev/tty; echo \"and $answer\"";
    let mut terminal = on_terminal(&scratch, &exec(&["range:0..1", "--tty"], script));
    "one\ntwo\n".bytes().for_each(|key| terminal.press(key));
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("got one") && screen.contains("and two"), "{screen}");
}

/// Ctrl-C reaches the command as well, so its death is no failure.
#[test]
fn ctrl_c_ends_a_command_with_the_terminal() {
    let scratch = Scratch::new();
    let args = exec(&["range:0..5", "--tty", "-j", "1"], "echo waiting; read answer");
    let mut terminal = on_terminal(&scratch, &args);
    wait_until("the command", || terminal.screen().contains("waiting"));
    terminal.press(CTRL_C);
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(130), "{screen}");
    assert!(!screen.contains("failed"), "{screen}");
}

/// Ctrl-Z stops both, and the shell continues both in the foreground.
#[test]
fn command_with_the_terminal_is_stopped_and_continued_with_gossip() {
    let scratch = Scratch::new();
    let script = "echo waiting; read answer; echo \"got $answer\"";
    let shell = ["bash", "-c", "set -m; \"$@\"; fg %1", "bash", GOSSIP];
    let words = [&shell, exec(&["range:0..1", "--tty"], script).as_slice()].concat();
    let mut terminal = Terminal::start(&scratch.command(GOSSIP), &words);
    wait_until("the command", || terminal.screen().contains("waiting"));
    terminal.press(CTRL_Z);
    wait_until("the stop", || terminal.screen().contains("Stopped"));
    "one\n".bytes().for_each(|key| terminal.press(key));
    let (code, screen) = terminal.finish();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("got one"), "{screen}");
}

#[rstest]
#[case::jobs(&["-j", "2"], "several commands")]
#[case::stream(&["--stream"], "--stream")]
#[case::no_terminal(&[], "there is no terminal")]
fn terminal_is_refused(#[case] more: &[&str], #[case] why: &str) {
    let scratch = Scratch::new();
    let args = exec(&[&["range:0..1", "--tty"], more].concat(), "true");
    // Without a terminal, wherever the test runs.
    let mut command = scratch.command("setsid");
    let ran =
        finish(command.arg("--wait").arg(GOSSIP).args(args).stdin(Stdio::null()).spawn().unwrap());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}
