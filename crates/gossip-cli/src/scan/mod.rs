//! `scan` and `findings`: searches a source for leaked secrets, and reports the findings, also
//! those of commands.
//!
//! A scan is a run like that of `exec`, with another processor: it resumes, shares work, counts
//! failures and has a certificate in the same way. The report is read from the store, so it is the
//! same whatever crashed meanwhile, and does not depend on which process prints it.

mod accepted;
mod commands;
mod report;
mod sarif;
mod secret_key;
mod whole_secrets;

use std::ffi::OsStr;
use std::sync::Arc;

use gossip::coordination::RunStatus;
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{Clock as _, Drain, Job, OpenedState, Processor, SystemClock};
use gossip::secrets::{FindingReport, ReportError, ScanOptions, SecretScan};
use gossip::sources::SourceOptions;
use gossip::store::Backend;
use gossip::{Prepared, Scan, ScanError, Totals};

use self::accepted::Judge;
use self::report::{Counts, RunFindings, counts_text};
use crate::args::{FailOn, Format, Global};
use crate::console::Console;
use crate::exec::{self, Worker};
use crate::failure::{Code, Failure};
use crate::opening::{self, Cancelled, Notices};
use crate::output::{self, Record, count};
use crate::scan_args::{DetectionArgs, FindingsArgs, ScanArgs};
use crate::sources;
use crate::{items, rules, runs, signals, store};

/// Scans sources one after the other, and prints the findings of all of them.
///
/// Returns the exit code: that of the worst run, or 10 for findings that are not accepted.
pub(crate) fn scan(
    global: &Global,
    args: ScanArgs,
    console: &Arc<Console>,
) -> Result<Code, Failure> {
    // Before the scan, which may take hours.
    whole_secrets::check_terminal(args.report.show_secrets)?;
    let secrets = compile(global, &args.detection, console)?;
    // All of them before the first run is created: a mistake in the last would be seen hours later.
    let sources: Result<Vec<_>, Failure> = args
        .sources
        .iter()
        .map(|typed| {
            let judge = Judge::read(&args.report, typed, console)?;
            Ok((typed, prepare(&args, typed, &secrets)?, judge))
        })
        .collect();
    let (backend, tenant) = (store::open_for_results(global)?, store::tenant(global)?);
    // One for all sources: a signal ends the command and not only the present scan.
    let drain = Drain::new();
    signals::drain_on_signals(&drain, console)?;
    console.drain_when_closed(&drain);
    let scanning = Scanning { global, backend: &backend, tenant, secrets: &secrets, console };
    let (mut code, mut found, mut keys) = (Code::Complete, Vec::new(), 0);
    for (typed, prepared, judge) in sources? {
        let (ended, run) = scanning.source(&args, (typed, &prepared), &drain)?;
        code = worse(code, ended);
        // No report: half of the findings would look like all of them.
        if ended == Code::Interrupted {
            let id = format!("{:016x}", run.as_raw());
            console.note(&format!("findings so far: gossip findings {id}"));
            return Ok(code);
        }
        // From the store, because other processes may have worked on the run.
        keys += runs::totals(&mut backend.coordinator(), tenant, run)?.keys;
        let report = read(&backend, tenant, run)?;
        let shown = match args.report.show_secrets {
            true => whole_secrets::read(
                &report,
                &secrets,
                (prepared.source(), prepared.connector()),
                tenant,
                console,
            ),
            false => whole_secrets::Secrets::default(),
        };
        let source = prepared.source().text().to_string_lossy().into_owned();
        found.push(RunFindings { run, source, report, judge, secrets: shown });
    }
    let counts = report::print(global.output, &found, &args.report, console)?;
    let code = with_findings(code, args.work.fail_on, &counts);
    finish(global.output, code, &counts, keys, console)?;
    print_passed(&secrets, console);
    Ok(code)
}

/// Prints the findings of a run.
pub(crate) fn findings(
    global: &Global,
    args: &FindingsArgs,
    console: &Console,
) -> Result<Code, Failure> {
    whole_secrets::check_terminal(args.report.show_secrets)?;
    let (backend, tenant) = (store::open_existing(global)?, store::tenant(global)?);
    let coordinator = &mut backend.coordinator();
    let run = args.run.find(coordinator, tenant)?;
    let totals = runs::totals(coordinator, tenant, run)?;
    let job = gossip::runtime::job_of(coordinator, SystemClock::new().wall(), tenant, run);
    let job = job.map_err(|error| runs::job_failure(run, &error))?;
    let report = match FindingReport::read(coordinator, tenant, run) {
        Ok(report) if !is_of_commands(&report, &job, &totals) => report,
        Ok(_) | Err(ReportError::Unreadable(_)) => {
            let run = (&backend, tenant, run);
            return commands::findings(global, args, run, &totals, console);
        }
        Err(error) => return Err(unreadable(error)),
    };
    let judge = Judge::read(&args.report, &job.source, console)?;
    let secrets = match args.report.show_secrets {
        true => {
            let source = sources::restore(&job.source, job.options);
            let source = source.map_err(|error| {
                Failure::new(Code::Usage, "the source is not available here").why(error)
            })?;
            let connector = source.open().map_err(|error| {
                Failure::new(Code::Usage, "the source is not available here").why(error)
            })?;
            // The rules are needed again: the store has only hashes of the secrets.
            let secrets = compile(global, &args.detection, console)?;
            whole_secrets::read(&report, &secrets, (&source, &*connector), tenant, console)
        }
        false => whole_secrets::Secrets::default(),
    };
    let source = job.source.to_string_lossy().into_owned();
    let found = RunFindings { run, source, report, judge, secrets };
    let counts = report::print(global.output, &[found], &args.report, console)?;
    let unread = totals.unread > 0 || totals.parked > 0 || totals.damaged > 0;
    let code = if unread { Code::Incomplete } else { Code::Complete };
    let code = with_findings(code, args.fail_on, &counts);
    finish(global.output, code, &counts, totals.keys, console)?;
    Ok(code)
}

/// Prints counts: a line for people, or the last record of JSON lines.
fn finish(
    format: Format,
    code: Code,
    counts: &Counts,
    keys: u64,
    console: &Console,
) -> Result<(), Failure> {
    match format {
        Format::Jsonl => {
            let record = Record::new()
                .with("type", "summary")
                .with("exit_code", code as u8)
                .with("keys", keys)
                .with("findings", counts.new)
                .with("accepted", counts.accepted)
                .with("unread", counts.gaps);
            output::one(format, &record)
        }
        // One JSON value has no room for a summary; it goes to standard error.
        Format::Table | Format::Wide | Format::Json | Format::Sarif => {
            console.note(&counts_text(counts));
            Ok(())
        }
    }
}

/// Prints how many contents were passed over, so that silence about them is not taken for a result.
fn print_passed(secrets: &SecretScan, console: &Console) {
    let passed = secrets.binaries_passed();
    if passed > 0 {
        let contents = count(passed, "binary content");
        console.note(&format!("{contents} not searched here; --binaries searches them"));
    }
}

/// Findings that are not accepted end a complete scan with 10; an incomplete one stays incomplete.
const fn with_findings(code: Code, fail_on: Option<FailOn>, counts: &Counts) -> Code {
    match (code, fail_on) {
        // A part that was not read may hold secrets.
        (Code::Complete | Code::Findings, _) if counts.gaps > 0 => Code::Incomplete,
        (Code::Complete | Code::Findings, Some(FailOn::Findings)) if counts.new > 0 => {
            Code::Findings
        }
        // The run counts findings that are accepted here.
        (Code::Findings, _) => Code::Complete,
        (code, _) => code,
    }
}

/// Returns the code that says more.
const fn worse(one: Code, other: Code) -> Code {
    match (one, other) {
        // Any other code means that something is missing, which findings must not hide.
        (Code::Complete | Code::Findings, other) => other,
        (one, _) => one,
    }
}

/// Reads the stored findings of a run.
fn read(backend: &Backend, tenant: TenantId, run: RunId) -> Result<FindingReport, Failure> {
    FindingReport::read(&mut backend.coordinator(), tenant, run).map_err(unreadable)
}

fn unreadable(error: ReportError) -> Failure {
    match error {
        ReportError::Store(error) => Failure::store(&error),
        error => Failure::new(Code::Store, "the findings cannot be read").why(error),
    }
}

/// Returns whether a run without stored findings of a scan is none: it has a command, or counted
/// findings that another processor reported.
fn is_of_commands(report: &FindingReport, job: &Job, totals: &Totals) -> bool {
    let has_items = report.items().next().is_some();
    !has_items && (!job.command.is_empty() || totals.findings > 0)
}

/// Compiles the rules of a command under the user's key.
fn compile(
    global: &Global,
    args: &DetectionArgs,
    console: &Console,
) -> Result<SecretScan, Failure> {
    let rules = rules::read(&args.rules, !args.no_built_in)?;
    let mut options = ScanOptions::default();
    options.structured_only = args.structured_only;
    options.binaries = args.binaries;
    if args.no_archives {
        options.archives = None;
    }
    let key = secret_key::load(global, args.secret_key_file.as_deref(), console)?;
    // One file can be named; of several, the rule's id in the message has to do.
    let file = match &args.rules[..] {
        [file] => Some(file.as_path()),
        _ => None,
    };
    SecretScan::with_options(&rules, options, key).map_err(|error| rules::refused(file, &error))
}

fn prepare(args: &ScanArgs, typed: &OsStr, secrets: &SecretScan) -> Result<Prepared, Failure> {
    let run = &args.run;
    let options =
        SourceOptions { ignore: run.ignore, follow_links: run.follow_links, no_header: false };
    let scan = Scan::of(typed)
        .sources(sources::registry())
        .source_options(options)
        .lease(run.lease)
        .retries(run.retries)
        .restart(run.restart)
        .allow_parallel(run.allow_parallel)
        .threads(exec::jobs(&args.work));
    let scan = match run.shards {
        Some(shards) => scan.shards(shards),
        None => scan,
    };
    scan.prepare_secrets(secrets).map_err(|error| match error {
        ScanError::Source(error) => opening::bad_source(typed, &error),
        error => opening::failure(&error),
    })
}

/// What the scans of one command have in common.
struct Scanning<'a> {
    global: &'a Global,
    backend: &'a Backend,
    tenant: TenantId,
    secrets: &'a SecretScan,
    console: &'a Arc<Console>,
}

impl Scanning<'_> {
    /// Works on the run of one source until it ends. Returns its exit code without findings.
    fn source(
        &self,
        args: &ScanArgs,
        (typed, prepared): (&OsStr, &Prepared),
        drain: &Drain,
    ) -> Result<(Code, RunId), Failure> {
        let notices = Notices::for_worker(self.console).asked_for(args.run.shards);
        let cancelled = Cancelled { others: false, changed: args.run.restart };
        let run = (prepared, self.backend, self.tenant);
        let session = opening::open(run, cancelled, &notices, self.console)?;
        let session = session.with_names(items::names(prepared.source(), Some(typed)));
        let run = session.run();
        if let OpenedState::Over(status) = session.state() {
            return self.over(run, status).map(|code| (code, run));
        }
        let worker = Worker {
            global: self.global,
            backend: self.backend,
            tenant: self.tenant,
            console: self.console,
            work: &args.work,
            mode: args.work.progress.on(self.console),
            prints_summary: false,
        };
        let processor = |_| -> Box<dyn Processor + '_> {
            Box::new(self.secrets.processor(self.tenant, prepared.source()))
        };
        Ok((worker.run(&session, drain, &processor)?, run))
    }

    /// Says that the scan has finished before; its findings are printed again.
    fn over(&self, run: RunId, status: RunStatus) -> Result<Code, Failure> {
        let totals = runs::totals(&mut self.backend.coordinator(), self.tenant, run)?;
        let (id, word) = (format!("{:016x}", run.as_raw()), runs::outcome_word(status, &totals));
        let again = "Add --restart to scan again";
        self.console.note(&format!("run {id}: already {word}. {again}"));
        Ok(match status {
            RunStatus::Done if totals.unread == 0 && totals.damaged == 0 => Code::Complete,
            RunStatus::Done => Code::Incomplete,
            RunStatus::Initializing
            | RunStatus::Active
            | RunStatus::Failed
            | RunStatus::Cancelled => Code::RunOver,
        })
    }
}
