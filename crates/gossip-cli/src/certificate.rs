//! Coverage certificates: written from a finished run in the store, and verified without one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use gossip::certificate::{
    Against, CertificateWriter, LeafRecord, LeafStatus, ParkedFor, Request, SIGNING_KEY_LEN_MAX,
    SigningKey, Trust, Verification, recount, verify,
};
use gossip::coordination::{
    ParkReason, RunManagement as _, RunStatus, ShardFilter, ShardStatus, ShardSummary,
};
use gossip::identity::{RunId, TenantId};
use gossip::runtime::{Job, RuntimeToken};
use gossip::sources::{Source, SourceOptions};
use gossip::store::Coordinator;

use crate::args::{Global, KeyArg, VerifyArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record, count};
use crate::{duration, opening, progress, runs};

/// Longest certificate that is buffered because its input cannot be read twice; enough for about
/// five million leaves.
const MAX_BUFFERED_BYTES: u64 = 1 << 30;

/// A finished run.
pub(crate) struct FinishedRun<'c> {
    pub(crate) coordinator: &'c mut Coordinator,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
}

/// Writes the certificate of a run.
pub(crate) fn export(
    run: FinishedRun<'_>,
    key: &KeyArg,
    to: Option<&Path>,
    console: &Console,
) -> Result<Code, Failure> {
    let key = signing_key(key)?;
    let (certificate, _) = run.certificate(key.as_ref())?;
    let against = key.as_ref().map_or(Against::ITSELF, |key| Against::ITSELF.with_key(key));
    // Before writing: an invalid certificate must not get a file name.
    let verification = check(&certificate[..], against)?;
    let written = match to {
        Some(path) => write_whole(path, &certificate),
        None => io::stdout().lock().write_all(&certificate),
    };
    written.map_err(|error| {
        Failure::new(Code::Internal, "the certificate cannot be written").why(error)
    })?;
    console.note(&summary(&verification));
    Ok(code_of(&verification))
}

/// Writes a file atomically.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A terminal or a pipe cannot be replaced by a rename.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes);
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = Path::new(&temporary);
    let write = || {
        let mut file = File::create(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(temporary, path)
    };
    write().inspect_err(|_| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(temporary);
    })
}

/// Verifies the certificate of a run.
pub(crate) fn verify_run(
    global: &Global,
    run: FinishedRun<'_>,
    compare: bool,
    console: &Console,
) -> Result<Code, Failure> {
    let (certificate, source) = run.certificate(None)?;
    let verification = match compare {
        true => against_source(&certificate[..], &source, None)?,
        false => check(&certificate[..], Against::ITSELF)?,
    };
    print(global, &verification, console)
}

/// Verifies a certificate file.
pub(crate) fn verify_file(
    global: &Global,
    args: &VerifyArgs,
    console: &Console,
) -> Result<Code, Failure> {
    let key = signing_key(&args.key)?;
    let certificate = Input::new(&args.file)?;
    let against = match &key {
        Some(key) => Against::ITSELF.with_key(key),
        None => Against::ITSELF,
    };
    let verification = check(certificate.open()?, against)?;
    let verification = match &args.source {
        Some(typed) => {
            let source = source_argument(typed, args)?;
            let stated = &verification.request.options;
            against_source(certificate.open()?, &source, key.as_ref())
                .map_err(|failure| hint_options(failure, stated, &source))?
        }
        None => verification,
    };
    print(global, &verification, console)
}

impl FinishedRun<'_> {
    /// Returns the certificate and its source.
    fn certificate(self, key: Option<&SigningKey>) -> Result<(Vec<u8>, Source), Failure> {
        let record = self.coordinator.get_run(self.tenant, self.run);
        let record = record.map_err(|error| runs::not_found(self.run, &error))?;
        let job = runs::job_of(self.coordinator, self.tenant, self.run)?;
        let rows = runs::rows(self.coordinator, self.tenant, self.run, ShardFilter::all())?;
        // Does not open the files, which may be on another machine; only a comparison does.
        let source = Source::restore(&job.source, job.options).map_err(|error| {
            Failure::new(Code::Internal, "the source of the run cannot be parsed").why(error)
        })?;
        let mut request = Request::new(self.run, &source);
        request.settings = settings(&job, record.config().lease_duration());
        check_finished(record.status(), &rows)?;
        let certificate = write(&request, &rows, key)?;
        Ok((certificate, source))
    }
}

/// Returns the settings of a run. Certificates are handed out and arguments may contain a password,
/// so only their number is included; the run's id is derived from all of them.
fn settings(job: &Job, lease: u64) -> Vec<(String, String)> {
    let program = job.command.first().map(|program| program.to_string_lossy().into_owned());
    vec![
        ("command".to_owned(), program.unwrap_or_default()),
        ("arguments".to_owned(), job.command.len().saturating_sub(1).to_string()),
        ("lease".to_owned(), duration::show(lease)),
        ("stream".to_owned(), job.stream.to_string()),
    ]
}

fn write(
    request: &Request,
    rows: &[ShardSummary],
    key: Option<&SigningKey>,
) -> Result<Vec<u8>, Failure> {
    let unwritten = |error: io::Error| {
        Failure::new(Code::Internal, "the certificate cannot be created").why(error)
    };
    let mut writer = CertificateWriter::new(Vec::new(), request).map_err(unwritten)?;
    for row in rows {
        if let Some(leaf) = leaf(row)? {
            writer.leaf(&leaf).map_err(unwritten)?;
        }
    }
    writer.finish(key).map_err(unwritten)
}

/// Returns the leaf of a shard; `None` for a split shard, whose children have leaves.
fn leaf(row: &ShardSummary) -> Result<Option<LeafRecord>, Failure> {
    let status = match (row.status, row.park_reason) {
        (ShardStatus::Split, _) => return Ok(None),
        (ShardStatus::Active, _) => return Err(not_finished(row.leased)),
        (ShardStatus::Done, _) => LeafStatus::Done,
        (ShardStatus::Parked, reason) => LeafStatus::Parked(parked_for(reason)),
    };
    let leaf = LeafRecord::new(&row.start, &row.end, status, row.fence_epoch);
    let Some(cursor) = &row.last_key else { return Ok(Some(leaf)) };
    let token = match &row.token {
        Some(token) => RuntimeToken::decode(token).map_err(|error| {
            Failure::new(Code::Internal, "a cursor token cannot be decoded").why(error)
        })?,
        None => RuntimeToken::START,
    };
    Ok(Some(leaf.with_progress(cursor, token.accumulator, token.unread)))
}

/// A certificate covers every shard, so all of them must be done or parked.
fn check_finished(run: RunStatus, rows: &[ShardSummary]) -> Result<(), Failure> {
    let waiting = rows.iter().filter(|row| row.status == ShardStatus::Active).count() as u64;
    let is_over = matches!(run, RunStatus::Failed | RunStatus::Cancelled);
    match (waiting, is_over) {
        (0, _) => Ok(()),
        (1.., true) => Err(Failure::new(Code::RunOver, "the run ended before it was finished")
            .why(format!(
                "it is {}, with {} not finished",
                runs::status_word(run),
                count(waiting, "shard")
            ))),
        (1.., false) => Err(not_finished(rows.iter().any(|row| row.leased))),
    }
}

fn not_finished(is_worked_on: bool) -> Failure {
    Failure::new(Code::Usage, "the run is not finished").next(match is_worked_on {
        true => "wait for its workers, then run the same command again",
        false => "no worker is active: repeat its command, or run gossip worker RUN",
    })
}

const fn parked_for(reason: Option<ParkReason>) -> ParkedFor {
    match reason {
        Some(ParkReason::PermissionDenied) => ParkedFor::PermissionDenied,
        Some(ParkReason::NotFound) => ParkedFor::NotFound,
        Some(ParkReason::Poisoned) => ParkedFor::Poisoned,
        Some(ParkReason::TooManyErrors) => ParkedFor::TooManyErrors,
        // The coordinator's enum may grow.
        Some(ParkReason::Other | _) | None => ParkedFor::Other,
    }
}

fn check(certificate: impl BufRead, against: Against<'_>) -> Result<Verification, Failure> {
    verify(certificate, against)
        .map_err(|refusal| Failure::new(Code::Internal, "the certificate is rejected").why(refusal))
}

fn against_source(
    certificate: impl BufRead,
    source: &Source,
    key: Option<&SigningKey>,
) -> Result<Verification, Failure> {
    let connector = recount(source).map_err(|error| {
        Failure::new(Code::Usage, "the source cannot be opened")
            .why(error)
            .next("compare on a machine that has the same files at the same path")
    })?;
    let request = Request::new(RunId::from_raw(0), source);
    let against = Against::ITSELF.with_source(&request, &*connector);
    check(certificate, key.map_or(against, |key| against.with_key(key)))
}

/// Parses the source argument. Its options are arguments, too: with the certificate's own options a
/// certificate over too little would pass.
fn source_argument(typed: &OsString, args: &VerifyArgs) -> Result<Source, Failure> {
    let options = SourceOptions {
        ignore: args.ignore,
        follow_links: args.follow_links,
        no_header: args.no_header,
    };
    opening::parse_source(typed, options)
}

/// Adds a hint if the options of the certificate and of the command differ.
fn hint_options(failure: Failure, stated: &[(String, bool)], source: &Source) -> Failure {
    let (stated, typed) =
        (chosen(stated), chosen(&Request::new(RunId::from_raw(0), source).options));
    if stated == typed {
        return failure;
    }
    failure.next(format!(
        "the certificate has the options {}, this command {}; give the options that were required",
        or_none(stated),
        or_none(typed)
    ))
}

/// Formats the enabled options as arguments.
fn chosen(options: &[(String, bool)]) -> String {
    let chosen = options.iter().filter(|(_, on)| *on).map(|(name, _)| format!("--{name}"));
    chosen.collect::<Vec<_>>().join(" ")
}

fn or_none(words: String) -> String {
    if words.is_empty() { "none".to_owned() } else { words }
}

/// A certificate that is read twice: a file from disk, any other input from memory.
enum Input<'a> {
    File(&'a Path),
    Buffered(Vec<u8>),
}

impl<'a> Input<'a> {
    fn new(path: &'a Path) -> Result<Self, Failure> {
        let is_input = path.as_os_str() == "-";
        if !is_input && std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Ok(Self::File(path));
        }
        let mut bytes = Vec::new();
        let limit = MAX_BUFFERED_BYTES + 1;
        let read = match is_input {
            true => io::stdin().lock().take(limit).read_to_end(&mut bytes),
            false => File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
        };
        read.map_err(|error| unreadable(path, &error))?;
        if bytes.len() as u64 > MAX_BUFFERED_BYTES {
            return Err(Failure::new(
                Code::Usage,
                "the certificate is too long for standard input",
            )
            .why(format!("more than {MAX_BUFFERED_BYTES} bytes cannot be buffered"))
            .next("write it to a file and give the file's name"));
        }
        Ok(Self::Buffered(bytes))
    }

    fn open(&self) -> Result<Box<dyn BufRead + '_>, Failure> {
        match self {
            Self::File(path) => {
                let file = File::open(path).map_err(|error| unreadable(path, &error))?;
                Ok(Box::new(BufReader::new(file)))
            }
            Self::Buffered(bytes) => Ok(Box::new(&bytes[..])),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let path = progress::escaped(path.as_os_str().as_bytes());
    Failure::new(Code::Usage, format!("cannot read `{path}`")).why(error)
}

fn signing_key(arg: &KeyArg) -> Result<Option<SigningKey>, Failure> {
    let Some(path) = &arg.key_file else { return Ok(None) };
    let bad =
        |why: &dyn std::fmt::Display| Failure::new(Code::Usage, "invalid --key-file").why(why);
    let file = File::open(path).map_err(|error| bad(&error))?;
    let mut bytes = Vec::new();
    let limit = SIGNING_KEY_LEN_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| bad(&error))?;
    SigningKey::try_new(&bytes).map(Some).map_err(|error| bad(&error))
}

fn print(global: &Global, found: &Verification, console: &Console) -> Result<Code, Failure> {
    let trust = match found.trust {
        Trust::Consistent => "consistent",
        Trust::Signed => "signed",
    };
    let source = OsString::from_vec(found.request.source.clone());
    let record = Record::new()
        .with("verdict", if found.is_complete() { "complete" } else { "incomplete" })
        .with("trust", trust)
        .with("compared", found.is_compared)
        .with("run", format!("{:016x}", found.request.run.as_raw()))
        .with_bytes(["source", "source_hex"], source.as_bytes())
        .with("options", or_none(chosen(&found.request.options)))
        .with("excluded", or_none(found.request.excluded.join("; ")))
        .with("keys", found.keys)
        .with("unread", found.unread)
        .with("done", found.done)
        .with("parked", found.parked);
    output::one(global.output, &record)?;
    console.note(&summary(found));
    Ok(code_of(found))
}

fn summary(found: &Verification) -> String {
    let Verification { keys, parked, unread, .. } = found;
    let trust = match (found.trust, found.is_compared) {
        (Trust::Signed, true) => "signed, matches the source",
        (Trust::Signed, false) => "signed",
        (Trust::Consistent, true) => "consistent, matches the source",
        (Trust::Consistent, false) => "consistent",
    };
    match found.is_complete() {
        true => format!("complete: {}; {trust}", count(*keys, "key")),
        false => {
            let (keys, parked) = (count(*keys, "key"), count(*parked, "shard"));
            format!("incomplete: {keys}, {parked} parked, {unread} unread; {trust}")
        }
    }
}

const fn code_of(found: &Verification) -> Code {
    if found.is_complete() { Code::Complete } else { Code::Incomplete }
}
