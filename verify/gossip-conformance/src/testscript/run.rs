//! Runs one script line by line and records its coverage.

use super::arguments::{Arguments, count, number};
use super::coverage::{Cell, FileCoverage, Order, Watch};
use super::executor::{CommandOutput, Executor, LocalExecutor};
use super::script::{ScriptError, blocks};
use super::{ScriptBackend, WorldSettings};

/// The command that sets limits, if a script begins with it.
const WORLD: &str = "world";

/// Outcome of a script.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a script runs to its end or not at all")]
pub enum ScriptOutcome {
    /// The backend does not support the settings of the script.
    Skipped,
    /// The script ran to its end.
    Done {
        /// The script with the actual output.
        text: String,
        /// Coverage of the script; the caller sets its name.
        coverage: FileCoverage,
    },
}

/// Runs a script on one coordinator.
///
/// # Errors
///
/// [`ScriptError`] if the script cannot be parsed or does not show an order that it announces. A
/// wrong answer is not an error: it appears in the returned text.
pub fn run_script<B: ScriptBackend>(
    backend: &mut B,
    text: &str,
) -> Result<ScriptOutcome, ScriptError> {
    run_script_on(&mut LocalExecutor::new(backend), text)
}

/// Runs a script on any executor.
///
/// # Errors
///
/// As for [`run_script`].
pub fn run_script_on<S: Executor>(
    executor: &mut S,
    text: &str,
) -> Result<ScriptOutcome, ScriptError> {
    let mut run =
        ScriptRun { executor, has_begun: false, watch: None, coverage: FileCoverage::default() };
    let mut written = String::new();
    let mut line_count = 0;
    for block in blocks(text)? {
        let mut output = Vec::new();
        for (line, instruction) in block.instructions() {
            line_count = line;
            let done = run.instruct(instruction, &mut output);
            match done.map_err(|message| ScriptError { line, message })? {
                Progress::Skipped => return Ok(ScriptOutcome::Skipped),
                Progress::Going => {}
            }
        }
        if !written.is_empty() {
            written.push('\n');
        }
        block.write(&output, &mut written);
    }
    run.close_watch().map_err(|message| ScriptError { line: line_count, message })?;
    Ok(ScriptOutcome::Done { text: written, coverage: run.coverage })
}

/// Whether a script can continue.
enum Progress {
    Going,
    /// The backend does not support the settings.
    Skipped,
}

/// A script during its run.
struct ScriptRun<'s, S> {
    executor: &'s mut S,
    /// Set by the first command, because that one may set limits.
    has_begun: bool,
    /// The rule order that the script is to show next.
    watch: Option<Watch>,
    coverage: FileCoverage,
}

impl<S: Executor> ScriptRun<'_, S> {
    /// Runs one line and appends its output.
    fn instruct(&mut self, line: &str, output: &mut Vec<String>) -> Result<Progress, String> {
        if let Some(order) = line.strip_prefix("order ") {
            self.close_watch()?;
            self.watch = Some(Watch::new(Order::parse(order)?));
            return Ok(Progress::Going);
        }
        if !self.has_begun {
            self.has_begun = self.executor.begin(settings(line)?)?;
            if !self.has_begun {
                return Ok(Progress::Skipped);
            }
        }
        if line.split_whitespace().next() == Some(WORLD) {
            output.push("ok".to_owned());
            return Ok(Progress::Going);
        }
        match line.strip_prefix("repeat ") {
            Some(rest) => output.extend(self.repeat(rest)?),
            None => {
                let CommandOutput { text, events, .. } = self.execute(line)?;
                output.push(text);
                output.extend(events.iter().map(|event| format!("event {event}")));
            }
        }
        Ok(Progress::Going)
    }

    /// Runs a command for every number of a range and counts the answers.
    fn repeat(&mut self, rest: &str) -> Result<Vec<String>, String> {
        const USAGE: &str = "`repeat` reads `repeat 01..16 COMMAND`";
        let (range, command) = rest.split_once(' ').ok_or(USAGE)?;
        let (first, last) = range.split_once("..").ok_or(USAGE)?;
        let (width, first, last) = (first.len(), number(first)?, number(last)?);
        let mut answers: Vec<(String, usize)> = Vec::new();
        for step in 0..=first.abs_diff(last) {
            let number = if first < last { first + step } else { first - step };
            let next = format!("{:0width$}", number + 1);
            let command = command.replace("$+", &next);
            let label = self.execute(&command.replace('$', &format!("{number:0width$}")))?.label;
            match answers.last_mut() {
                Some((known, times)) if *known == label => *times += 1,
                _ => answers.push((label, 1)),
            }
        }
        Ok(answers.into_iter().map(|(label, times)| format!("{times} times {label}")).collect())
    }

    /// Executes one command and records its coverage.
    fn execute(&mut self, line: &str) -> Result<CommandOutput, String> {
        let arguments = Arguments::parse(line)?;
        let mut output = self.executor.execute(line)?;
        // A refusal that changed something is a rule of its own.
        if output.text.starts_with("refused") && !output.events.is_empty() {
            output.label.push_str(".committed");
        }
        // Setup and inspection commands are not protocol operations.
        if arguments.command != "given" && arguments.command != "show" {
            let (operation, answer) = (arguments.command.clone(), output.label.clone());
            self.coverage.cells.insert(Cell { operation, answer });
        }
        if let Some(watch) = &mut self.watch {
            watch.note(&arguments, &output.label);
        }
        Ok(output)
    }

    /// Ends the part of the script that shows an order.
    fn close_watch(&mut self) -> Result<(), String> {
        if let Some(watch) = self.watch.take() {
            self.coverage.orders.insert(watch.close()?);
        }
        Ok(())
    }
}

/// Returns the settings of the leading `world` command, or the defaults.
fn settings(line: &str) -> Result<WorldSettings, String> {
    if line.split_whitespace().next() != Some(WORLD) {
        return Ok(WorldSettings::default());
    }
    let mut arguments = Arguments::parse(line)?;
    let mut size = |name| arguments.take(name).map(|value| count(&value)).transpose();
    let settings = WorldSettings {
        max_shards_per_tenant: size("tenant_max")?,
        max_total_shards: size("total_max")?,
        slab_bytes: size("slab")?,
        claim_cooldown: arguments.number("cooldown")?,
    };
    arguments.finish()?;
    Ok(settings)
}
