//! Starts other programs and reports how they ended.
//!
//! No command goes through a shell, and no output is hidden: a program inherits our streams, or its
//! lines are passed on while they are read.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::Failure;

/// The stream of a program that [`stream`] reads; the other one is inherited.
#[derive(Clone, Copy)]
pub(crate) enum Pipe {
    Stdout,
    Stderr,
}

/// Returns the cargo that runs xtask, so that every step uses one toolchain.
pub(crate) fn cargo() -> Command {
    // Cargo sets it for the programs it starts. It is missing if xtask is run directly.
    Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// Returns the cargo of another toolchain. Only rustup's `cargo` accepts `+toolchain`.
pub(crate) fn cargo_of(toolchain: &str) -> Command {
    let mut command = Command::new("cargo");
    command.arg(format!("+{toolchain}"));
    command
}

/// Runs a program on our own streams; a non-zero exit is a failure. `next` is the next step for the
/// reader.
pub(crate) fn run(command: &mut Command, next: &str) -> Result<(), Failure> {
    let status = command.status().map_err(|error| not_started(command, &error))?;
    expect_success(command, status, next)
}

/// Runs a program and returns its stdout; stderr is inherited.
pub(crate) fn capture(command: &mut Command, next: &str) -> Result<String, Failure> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| not_started(command, &error))?;
    expect_success(command, output.status, next)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program, passes one of its streams on line by line, and calls `on_line` with each. The
/// caller checks the exit status.
pub(crate) fn stream(
    command: &mut Command,
    pipe: Pipe,
    on_line: &mut dyn FnMut(&str),
) -> Result<ExitStatus, Failure> {
    match pipe {
        Pipe::Stdout => command.stdout(Stdio::piped()),
        Pipe::Stderr => command.stderr(Stdio::piped()),
    };
    // Only one stream is piped, so reading it to its end before waiting cannot block the program.
    let mut child = command.spawn().map_err(|error| not_started(command, &error))?;
    match pipe {
        Pipe::Stdout => pass_on(child.stdout.take(), |line| println!("{line}"), on_line),
        Pipe::Stderr => pass_on(child.stderr.take(), |line| eprintln!("{line}"), on_line),
    }
    child.wait().map_err(|error| not_started(command, &error))
}

/// Runs a program, passes its output on, and returns it; a non-zero exit is a failure.
pub(crate) fn show(command: &mut Command, next: &str) -> Result<String, Failure> {
    let mut output = String::new();
    let status = stream(command, Pipe::Stdout, &mut |line| {
        output.push_str(line);
        output.push('\n');
    })?;
    expect_success(command, status, next)?;
    Ok(output)
}

/// Converts a non-zero exit status into a failure that shows the command.
pub(crate) fn expect_success(
    command: &Command,
    status: ExitStatus,
    next: &str,
) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let what = format!("`{}` failed", describe(command));
    Err(Failure::new(what, format!("it ended with {status}; see its output above"), next))
}

/// Returns whether a program of that name is on the search path.
pub(crate) fn is_installed(binary: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(binary).is_file())
}

/// Returns the command as typed, without the directories of the program.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Returns the failure of a program that could not be started, usually because it is missing.
fn not_started(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().to_string_lossy().into_owned();
    Failure::new(
        format!("`{}` could not be run", describe(command)),
        error.to_string(),
        format!("check that `{program}` is installed and on the search path"),
    )
}

/// Reads a stream to its end. Invalid UTF-8 becomes replacement characters: test output may contain
/// any bytes, and they must not stop the counting.
fn pass_on(stream: Option<impl Read>, show: impl Fn(&str), on_line: &mut dyn FnMut(&str)) {
    let Some(stream) = stream else { return };
    for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        show(&line);
        on_line(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_reported_with_its_name() {
        let failure = run(&mut Command::new("no-such-program-here"), "").unwrap_err();
        assert!(failure.to_string().contains("no-such-program-here"));
    }

    #[test]
    fn a_failing_program_is_a_failure_that_shows_its_arguments() {
        let mut command = cargo();
        command.args(["--explain-nothing"]).stdout(Stdio::null()).stderr(Stdio::null());
        let failure = run(&mut command, "type something else").unwrap_err().to_string();
        assert!(failure.contains("cargo --explain-nothing"));
        assert!(failure.contains("type something else"));
    }

    #[test]
    fn every_line_of_a_stream_is_seen_even_if_it_is_not_utf8() {
        let mut seen = Vec::new();
        let bytes: &[u8] = b"one\n\xFFtwo\nlast";
        pass_on(Some(bytes), |_| (), &mut |line| seen.push(line.to_owned()));
        assert_eq!(seen, ["one", "\u{FFFD}two", "last"]);
    }
}
