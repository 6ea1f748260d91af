//! Builds the workspace's test programs and runs several of them at a time.
//!
//! `cargo test` runs one test program after the other, and many of ours wait for servers and child
//! processes most of their time. Running as many programs as there are cores overlaps that waiting.
//! What else must hold and is mostly compiling ([`Beside`]) runs beside them with the lowest
//! priority. The output of each is printed in one piece when it has ended.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;
use crate::process;
use crate::tally::Tally;

/// Programs listed at the end, slowest first, so that a slow test is noticed when it is added.
const SLOWEST_SHOWN: usize = 8;

/// Programs that take longest. They start first, so that the run does not end with one of them
/// alone on one core.
const SLOW: [&str; 3] = [
    "gossip-coordination-sqlite gossip_coordination_sqlite",
    "gossip-sim gossip_sim",
    "gossip-trials workers",
];

/// Programs whose tests wait for the disks of servers most of the time, and the number of their
/// test threads. With one thread per core the program leaves a core half idle; they run beside
/// the rest, which has all cores.
const WAITING: [(&str, &str); 2] =
    [("gossip-coordination-etcd it", "5"), ("gossip-coordination-postgres it", "4")];

/// The program whose tests compile the product a second time. It runs before the commands of
/// [`Beside`], in their thread: cargo lets one command build at a time, and this one would wait for
/// one of the lowest priority.
const COMPILING: &str = "gossip-cli upgrade";

/// A file system in memory. The programs of [`WAITING`] kill and stop processes but never cut the
/// power, so a sync of their servers to a disk shows nothing, and it takes most of their time.
const MEMORY: &str = "/dev/shm";

/// How long one program may run. The slowest takes two minutes on two quiet cores; a program that
/// waits for ever must not take the whole run, and the names of its tests, with it.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How often a running program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Free space that the servers of the tests need in [`MEMORY`], in KiB: some twenty at a time, each
/// with a log of 64 MiB, and the same again.
const MEMORY_KIB_MIN: u64 = 4 * 1024 * 1024;

/// One test program that cargo built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// Package and target, as in `gossip-cli exec`.
    name: String,
    executable: PathBuf,
    /// The package's directory, in which cargo would run it.
    directory: PathBuf,
}

/// A command that is mostly compiling.
pub(crate) struct Beside {
    pub(crate) name: &'static str,
    /// Cargo and its arguments.
    pub(crate) command: Command,
}

/// A command whose output is printed when it has ended.
struct Job {
    name: String,
    command: Command,
}

/// How a program ended.
struct Ended {
    name: String,
    output: String,
    succeeded: bool,
    took: Duration,
}

/// Builds the test programs that `cargo test` with these arguments would run, and runs them and
/// `beside`. Counts their tests in `tally`.
pub(crate) fn run(
    arguments: &[&str],
    beside: Vec<Beside>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let mut programs = build(arguments)?;
    if programs.is_empty() {
        let why = "none of cargo's messages names a test program";
        return Err(Failure::new("no test was run", why, "compare xtask/src/test_programs.rs"));
    }
    programs.sort_by_key(|program| !SLOW.contains(&program.name.as_str()));
    let mut ended = run_all(programs, beside);
    for line in ended.iter().flat_map(|program| program.output.lines()) {
        tally.add_line(line);
    }
    ended.sort_by_key(|program| std::cmp::Reverse(program.took));
    for program in ended.iter().take(SLOWEST_SHOWN) {
        eprintln!("   {:6.1} s  {}", program.took.as_secs_f64(), program.name);
    }
    let failed: Vec<&str> =
        ended.iter().filter(|it| !it.succeeded).map(|it| it.name.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!("tests failed: {}", failed.join(", ")),
        "their output is above",
        "cargo test -p PACKAGE NAME, for a test named above",
    ))
}

/// Compiles, with cargo's own progress on stderr.
fn build(arguments: &[&str]) -> Result<Vec<Program>, Failure> {
    let mut command = process::cargo();
    command.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]);
    command.args(arguments);
    let messages = process::capture(&mut command, "fix the errors that rustc reported above")?;
    Ok(messages.lines().filter_map(program).collect())
}

/// The test program that a message of cargo announces, if it announces one.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = directory.file_name()?.to_string_lossy();
    let name = format!("{package} {}", message["target"]["name"].as_str()?);
    Some(Program { name, executable, directory })
}

/// Runs the programs on as many threads as there are cores, those of [`WAITING`] besides, and
/// `beside` on one thread more; the results are in no certain order.
fn run_all(programs: Vec<Program>, beside: Vec<Beside>) -> Vec<Ended> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (mut waiting, mut busy, mut last) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    for program in programs {
        let queue = match program.name.as_str() {
            COMPILING => &mut last,
            name if threads_of(name).is_some() => &mut waiting,
            _ => &mut busy,
        };
        queue.push_back(job(program));
    }
    last.extend(beside.into_iter().map(in_background));
    let (waiting, busy, last) = (Mutex::new(waiting), Mutex::new(busy), Mutex::new(last));
    let ended = Mutex::new(Vec::new());
    let run_queue = |queue: &Mutex<VecDeque<Job>>| {
        // A function, because a guard in the condition of a loop is held while its body runs.
        let next = || locked(queue).pop_front();
        while let Some(job) = next() {
            let result = run_one(job);
            // Printed under the lock, so that outputs do not mix.
            let mut ended = locked(&ended);
            println!("== {}\n{}", result.name, result.output);
            ended.push(result);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run_queue(&last));
        for _ in 0..WAITING.len() {
            scope.spawn(|| run_queue(&waiting));
        }
        for _ in 0..cores {
            scope.spawn(|| run_queue(&busy));
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn job(program: Program) -> Job {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.directory);
    // Cargo sets it for test programs, and a few of them read it.
    command.env("CARGO_MANIFEST_DIR", &program.directory);
    if let Some(threads) = threads_of(&program.name) {
        command.env("RUST_TEST_THREADS", threads);
        command.envs(has_memory().then_some(("TMPDIR", MEMORY)));
    }
    Job { name: program.name, command }
}

/// Gives a command the lowest priority: tests measure time, and a compiler does not.
fn in_background(beside: Beside) -> Job {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(beside.command.get_program()).args(beside.command.get_args());
    for (name, value) in beside.command.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Job { name: beside.name.to_owned(), command }
}

/// Returns the number of test threads of a program that waits most of the time.
fn threads_of(name: &str) -> Option<&'static str> {
    WAITING.iter().find(|(waiting, _)| *waiting == name).map(|(_, threads)| *threads)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether [`MEMORY`] exists and has room for the servers.
fn has_memory() -> bool {
    let output = Command::new("df").args(["-k", "--output=avail", MEMORY]).output();
    let text = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let free = text.ok().and_then(|text| text.lines().nth(1)?.trim().parse::<u64>().ok());
    free.is_some_and(|kib| kib >= MEMORY_KIB_MIN)
}

/// Runs one command to its end, or until [`PROGRAM_PATIENCE`] is over.
fn run_one(mut job: Job) -> Ended {
    let (started, name) = (Instant::now(), job.name);
    let command = job.command.stdin(Stdio::null());
    let (output, succeeded) = match run_to_file(command, PROGRAM_PATIENCE) {
        Ok((text, Some(status))) if status.success() => (text, true),
        Ok((text, Some(status))) => (format!("{text}\n{name} ended with {status}\n"), false),
        Ok((text, None)) => {
            let minutes = PROGRAM_PATIENCE.as_secs() / 60;
            let why = format!("{name} was killed after {minutes} minutes");
            (format!("{text}\n{why}; a test above has no result\n"), false)
        }
        Err(error) => (format!("{name} did not start: {error}"), false),
    };
    Ended { name, output, succeeded, took: started.elapsed() }
}

/// Runs a command with both outputs in one file and returns them, with its status, or `None` if it
/// was killed because it ran longer than `patience`. A file and no pipe: a server that a killed
/// program leaves behind would hold a pipe open, and the reader would wait for it.
fn run_to_file(
    command: &mut Command,
    patience: Duration,
) -> io::Result<(String, Option<ExitStatus>)> {
    let mut file = anonymous_file()?;
    let mut child = command.stdout(file.try_clone()?).stderr(file.try_clone()?).spawn()?;
    let started = Instant::now();
    let mut status = child.try_wait()?;
    while status.is_none() && started.elapsed() < patience {
        thread::sleep(LOOK_EVERY);
        status = child.try_wait()?;
    }
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), status))
}

/// Returns a new file without a name.
fn anonymous_file() -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("gossip-test-output-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = File::options().create_new(true).read(true).append(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTIFACT: &str = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/a/Cargo.toml",
        "target":{"name":"laws"},"profile":{"test":true},"executable":"/t/laws-1"}"#;

    #[test]
    fn a_test_program_is_found_in_a_message() {
        let expected = Program {
            name: "a laws".to_owned(),
            executable: "/t/laws-1".into(),
            directory: "/r/crates/a".into(),
        };
        assert_eq!(program(ARTIFACT), Some(expected));
    }

    #[test]
    fn other_messages_are_ignored() {
        assert_eq!(program("not JSON"), None);
        assert_eq!(program(&ARTIFACT.replace("true", "false")), None);
        assert_eq!(program(&ARTIFACT.replace("\"/t/laws-1\"", "null")), None);
        assert_eq!(program(&ARTIFACT.replace("compiler-artifact", "build-finished")), None);
    }

    /// Each program waits for the other one's file, so they end only if both run.
    #[test]
    fn programs_run_at_the_same_time() {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            return;
        }
        let directory = std::env::temp_dir().join(format!("test-programs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let script = |own: &str, other: &str| {
            let path = directory.join(format!("{own}.sh"));
            let text = format!(
                "#!/bin/sh\n: > {own}\nn=0\nwhile [ ! -e {other} ] && [ $n -lt 200 ]; do\n\
                 sleep 0.05; n=$((n + 1))\ndone\n[ -e {other} ]\n"
            );
            std::fs::write(&path, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
            Program { name: own.to_owned(), executable: path, directory: directory.clone() }
        };
        let ended = run_all(vec![script("a", "b"), script("b", "a")], Vec::new());
        assert!(ended.iter().all(|program| program.succeeded));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// The process that it leaves behind holds the outputs open for longer than the test waits.
    #[test]
    fn program_without_end_is_killed_and_its_output_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 3000 & echo $!; wait"]);
        let (text, status) = run_to_file(&mut command, Duration::from_millis(500)).unwrap();
        let left = text.strip_prefix("begun\n").expect("its output");
        Command::new("kill").arg(left.trim()).status().unwrap();
        assert_eq!(status, None);
    }

    #[test]
    fn command_beside_the_tests_has_the_lowest_priority_and_its_environment() {
        let mut command = Command::new("sh");
        command.args(["-c", "nice; echo $FLAGS; exit 3"]).env("FLAGS", "a b");
        let ended = run_all(Vec::new(), vec![Beside { name: "lint", command }]);
        let [lint] = ended.as_slice() else { panic!("one command was run") };
        assert!(lint.output.starts_with("19\na b\n"), "{}", lint.output);
        assert!(!lint.succeeded);
    }

    #[test]
    fn a_program_that_does_not_start_has_failed() {
        let missing = Program {
            name: "a b".to_owned(),
            executable: "/no/such".into(),
            directory: ".".into(),
        };
        let ended = run_one(job(missing));
        assert!(!ended.succeeded);
        assert!(ended.output.contains("did not start"), "{}", ended.output);
    }
}
