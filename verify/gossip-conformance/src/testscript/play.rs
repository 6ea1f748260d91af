//! One script being played: its lines in their order, and what it covers.

use super::arguments::{Arguments, count, number};
use super::coverage::{Cell, FileCoverage, Order, Watch};
use super::script::{ScriptError, blocks};
use super::stage::{Here, Performed, Stage};
use super::{ScriptBackend, WorldSettings};

/// The command that sets limits, if a script begins with it.
const WORLD: &str = "world";

/// What became of a script.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a script is played to its end or not at all")]
pub enum Played {
    /// The backend cannot have the settings that the script asks for.
    Skipped,
    /// It was played.
    Done {
        /// The script with the output that really came.
        text: String,
        /// What it covers; the name is for the caller to fill in.
        coverage: FileCoverage,
    },
}

/// Plays a script through one coordinator.
///
/// # Errors
///
/// [`ScriptError`] if the script cannot be understood or does not show an order that it announces.
/// A wrong answer is no error: it stands in the text.
pub fn play<B: ScriptBackend>(backend: &mut B, text: &str) -> Result<Played, ScriptError> {
    play_on(&mut Here::new(backend), text)
}

/// Plays a script on any stage.
///
/// # Errors
///
/// As [`play`].
pub fn play_on<S: Stage>(stage: &mut S, text: &str) -> Result<Played, ScriptError> {
    let mut show = Show { stage, has_begun: false, watch: None, coverage: FileCoverage::default() };
    let mut written = String::new();
    let mut line_count = 0;
    for block in blocks(text)? {
        let mut output = Vec::new();
        for (line, instruction) in block.instructions() {
            line_count = line;
            let done = show.instruct(instruction, &mut output);
            match done.map_err(|message| ScriptError { line, message })? {
                Progress::Skipped => return Ok(Played::Skipped),
                Progress::Going => {}
            }
        }
        if !written.is_empty() {
            written.push('\n');
        }
        block.write(&output, &mut written);
    }
    show.close_watch().map_err(|message| ScriptError { line: line_count, message })?;
    Ok(Played::Done { text: written, coverage: show.coverage })
}

/// Whether a script can go on.
enum Progress {
    Going,
    /// The backend has no coordinator for it.
    Skipped,
}

/// A script on its stage.
struct Show<'s, S> {
    stage: &'s mut S,
    /// The first command begins, because that one may set limits.
    has_begun: bool,
    /// The order that the script is about to show.
    watch: Option<Watch>,
    coverage: FileCoverage,
}

impl<S: Stage> Show<'_, S> {
    /// Does what one line says and adds its output.
    fn instruct(&mut self, line: &str, output: &mut Vec<String>) -> Result<Progress, String> {
        if let Some(order) = line.strip_prefix("order ") {
            self.close_watch()?;
            self.watch = Some(Watch::new(Order::parse(order)?));
            return Ok(Progress::Going);
        }
        if !self.has_begun {
            self.has_begun = self.stage.begin(settings(line)?)?;
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
                let performed = self.perform(line)?;
                output.push(performed.text);
                output.extend(performed.events.iter().map(|event| format!("event {event}")));
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
            let label = self.perform(&command.replace('$', &format!("{number:0width$}")))?.label;
            match answers.last_mut() {
                Some((known, times)) if *known == label => *times += 1,
                _ => answers.push((label, 1)),
            }
        }
        Ok(answers.into_iter().map(|(label, times)| format!("{times} times {label}")).collect())
    }

    /// Has one command performed and remembers what it covers.
    fn perform(&mut self, line: &str) -> Result<Performed, String> {
        let arguments = Arguments::parse(line)?;
        let mut performed = self.stage.perform(line)?;
        // A refusal that changed something is a rule of its own.
        if performed.text.starts_with("refused") && !performed.events.is_empty() {
            performed.label.push_str(".committed");
        }
        // What only prepares or looks is no operation of the protocol.
        if arguments.command != "given" && arguments.command != "show" {
            let (operation, answer) = (arguments.command.clone(), performed.label.clone());
            self.coverage.cells.insert(Cell { operation, answer });
        }
        if let Some(watch) = &mut self.watch {
            watch.note(&arguments, &performed.label);
        }
        Ok(performed)
    }

    /// Ends the part of the script that shows an order.
    fn close_watch(&mut self) -> Result<(), String> {
        if let Some(watch) = self.watch.take() {
            self.coverage.orders.insert(watch.close()?);
        }
        Ok(())
    }
}

/// The settings of a script: those of `world`, if it begins so.
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
