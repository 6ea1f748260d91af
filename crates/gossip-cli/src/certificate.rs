//! Coverage certificates: written from a finished run in the store, and verified without one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Seek as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gossip::certificate::{
    Against, CertificateWriter, Differences, LeafDifference, ReadLeavesError, Refusal, Request,
    RunLeaves, SIGNING_KEY_LEN_MAX, SigningKey, Trust, Verification, recount, verify,
    verify_with_differences,
};
use gossip::coordination::{RunManagement as _, RunRecord, RunStatus};
use gossip::identity::{LogicalTime, RunId, TenantId};
use gossip::runtime::{Clock as _, Job, StreamFormat, SystemClock};
use gossip::sources::{KeyFormat, Source, SourceOptions};
use gossip::store::Coordinator;

use crate::args::{Global, KeyArg, VerifyArgs};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record, count};
use crate::sources;
use crate::{duration, html, opening, progress, runs, shards};

/// Longest certificate that is buffered because its input cannot be read twice; enough for about
/// five million leaves.
const MAX_BUFFERED_BYTES: u64 = 1 << 30;

/// Longest certificate that a page is made of: about three hundred thousand leaves, more than a
/// browser shows well.
const PAGE_BYTES: u64 = 64 << 20;

/// A finished run.
pub(crate) struct FinishedRun<'c> {
    pub(crate) coordinator: &'c mut Coordinator,
    pub(crate) tenant: TenantId,
    pub(crate) run: RunId,
    pub(crate) console: &'c Console,
    /// Whether the certificate states the command.
    pub(crate) states_command: bool,
}

/// Files that an export writes.
#[derive(Clone, Copy)]
pub(crate) struct Written<'p> {
    /// The certificate; standard output if nothing is named.
    pub(crate) certificate: Option<&'p Path>,
    /// The page for people.
    pub(crate) page: Option<&'p Path>,
}

/// Writes the certificate of a run, and its page.
pub(crate) fn export(
    run: FinishedRun<'_>,
    key: &KeyArg,
    Written { certificate: to, page }: Written<'_>,
    console: &Console,
) -> Result<Code, Failure> {
    let key = signing_key(key)?;
    // A terminal or a pipe cannot be replaced by a rename.
    let is_file = |path: &&Path| std::fs::metadata(path).map_or(true, |found| found.is_file());
    let unwritten = |error: io::Error| {
        Failure::new(Code::Internal, "the certificate cannot be written").why(error)
    };
    let mut spool = Spool::new(to.filter(is_file)).map_err(unwritten)?;
    let source = run.write_to(&mut spool, key.as_ref())?;
    let against = key.as_ref().map_or(Against::ITSELF, |key| Against::ITSELF.with_key(key));
    // Before it gets its name or is printed: an invalid certificate must not be used.
    let verification = check(spool.open().map_err(unwritten)?, against)?;
    // Before the certificate has its name: a page that cannot be written must not leave one.
    if let Some(page) = page {
        write_page(page, &mut spool, &verification, &source)?;
    }
    let written = match (to, page) {
        (Some(path), _) => spool.finish(path),
        (None, Some(_)) => Ok(()),
        (None, None) => spool.copy_to(&mut io::stdout().lock()),
    };
    written.map_err(unwritten)?;
    console.note(&summary(&verification));
    Ok(code_of(&verification))
}

/// Writes the page of a certificate.
fn write_page(
    to: &Path,
    spool: &mut Spool,
    found: &Verification,
    source: &Source,
) -> Result<(), Failure> {
    let unwritten = |error: io::Error| {
        Failure::new(Code::Internal, format!("cannot write `{}`", to.display())).why(error)
    };
    let mut certificate = String::new();
    let read =
        spool.open().map_err(unwritten)?.take(PAGE_BYTES + 1).read_to_string(&mut certificate);
    if read.map_err(unwritten)? as u64 > PAGE_BYTES {
        return Err(Failure::new(Code::Usage, "the certificate is too long for a page")
            .why(format!("it has more than {PAGE_BYTES} bytes"))
            .next("write the certificate itself: leave --html out"));
    }
    std::fs::write(to, html::page(&certificate, found, source)).map_err(unwritten)
}

/// Writes the certificate of a run, compares it with the source, and returns what it states.
pub(crate) fn prove(run: FinishedRun<'_>) -> Result<Verification, Failure> {
    // Verified before it is shown, as a written one: the leaves come from a store that may be
    // damaged.
    let mut spool = Spool::new(None).map_err(not_spooled)?;
    let console = run.console;
    let source = run.write_to(&mut spool, None)?;
    against_source(spool.open().map_err(not_spooled)?, (&source, Proof::Run), None, console)
}

/// Writes the certificate of a run, verifies it, and returns its text and what it states.
#[cfg(feature = "serve")]
pub(crate) fn in_memory(run: FinishedRun<'_>) -> Result<(String, Verification), Failure> {
    let mut spool = Spool::new(None).map_err(not_spooled)?;
    run.write_to(&mut spool, None)?;
    let found = check(spool.open().map_err(not_spooled)?, Against::ITSELF)?;
    let mut text = String::new();
    let read = spool.open().map_err(not_spooled)?.take(PAGE_BYTES + 1).read_to_string(&mut text);
    if read.map_err(not_spooled)? as u64 > PAGE_BYTES {
        return Err(Failure::new(Code::Usage, "the certificate is too long for the page")
            .next("write it to a file: gossip run export RUN --to FILE"));
    }
    Ok((text, found))
}

/// Verifies the certificate of a run.
pub(crate) fn verify_run(
    global: &Global,
    run: FinishedRun<'_>,
    compare: bool,
    console: &Console,
) -> Result<Code, Failure> {
    let verification = if compare {
        prove(run)?
    } else {
        let mut spool = Spool::new(None).map_err(not_spooled)?;
        run.write_to(&mut spool, None)?;
        check(spool.open().map_err(not_spooled)?, Against::ITSELF)?
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
    // After the check without a source: a certificate that contradicts itself needs no listing.
    let verification = match &args.source {
        Some(typed) => {
            let source = source_argument(typed, args)?;
            let stated = &verification.request.options;
            let against = (&source, Proof::File);
            against_source(certificate.open()?, against, key.as_ref(), console)
                .map_err(|failure| hint_options(failure, stated, &source))?
        }
        None => verification,
    };
    print(global, &verification, console)
}

impl FinishedRun<'_> {
    /// Writes the certificate to `spool` and returns its source.
    fn write_to(self, spool: &mut Spool, key: Option<&SigningKey>) -> Result<Source, Failure> {
        let record = self.coordinator.get_run(self.tenant, self.run);
        let record = record.map_err(|error| runs::not_found(self.run, &error))?;
        let job = runs::job_of(self.coordinator, self.tenant, self.run)?;
        let (now, directory) = (SystemClock::new().now(), std::env::temp_dir());
        // Into a file, because a run may have more leaves than fit into memory.
        let leaves = RunLeaves::read(self.coordinator, now, (self.tenant, self.run), &directory);
        let leaves = leaves.map_err(|error| not_listed(self.run, error))?;
        // Does not open the files, which may be on another machine; only a comparison does.
        let source = sources::restore(&job.source, job.options).map_err(|error| {
            Failure::new(Code::Internal, "the source of the run cannot be parsed").why(error)
        })?;
        let mut request = Request::new(self.run, &source);
        if self.states_command {
            request.command = job.command.iter().map(|word| word.as_bytes().to_vec()).collect();
        }
        request.settings = settings(&job, &record);
        // With the leaves that are written, because shards may change after the record was read.
        check_finished(record.status(), &leaves)?;
        let damaged: Vec<_> = leaves.damaged().iter().collect();
        if let Some(text) = shards::damaged_text(self.run, &damaged) {
            self.console.problem(&format!("{text}. Their ranges are uncovered"));
        }
        let mut writer = CertificateWriter::new(spool.writer(), &request).map_err(not_spooled)?;
        leaves.write_to(&request, &mut writer).map_err(not_spooled)?;
        writer.finish(key).map_err(not_spooled)?;
        Ok(source)
    }
}

/// Describes why the shards of a run cannot be read.
fn not_listed(run: RunId, error: ReadLeavesError) -> Failure {
    match error {
        ReadLeavesError::Run(error) => runs::not_found(run, &error),
        ReadLeavesError::File(error) => not_spooled(error),
        error => Failure::new(Code::Internal, "the shards of the run cannot be read").why(error),
    }
}

fn not_spooled(error: io::Error) -> Failure {
    Failure::new(Code::Internal, "the certificate cannot be created").why(error)
}

/// Returns the settings of a run, when it ran, and which program on which host writes this. Nothing
/// of the environment is included, which may hold secrets.
fn settings(job: &Job, run: &RunRecord) -> Vec<(String, String)> {
    let time = |time: LogicalTime| duration::rfc3339(time.as_raw());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let settings = [
        ("lease", duration::show(run.config().lease_duration())),
        ("stream", stream_name(job.stream).to_owned()),
        ("started", time(run.created_at())),
        ("completed", run.completed_at().map_or_else(|| "never".to_owned(), time)),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("host", host),
    ];
    settings.map(|(name, value)| (name.to_owned(), value)).into()
}

const fn stream_name(stream: Option<StreamFormat>) -> &'static str {
    match stream {
        None => "false",
        Some(StreamFormat::Json) => "true",
        Some(StreamFormat::Lines) => "lines",
    }
}

/// A certificate covers every shard, so all of them must be done, parked or damaged.
fn check_finished(run: RunStatus, leaves: &RunLeaves) -> Result<(), Failure> {
    let waiting = leaves.waiting();
    let is_over = matches!(run, RunStatus::Failed | RunStatus::Cancelled);
    match (waiting, is_over) {
        (0, _) => Ok(()),
        (1.., true) => Err(Failure::new(Code::RunOver, "the run ended before it was finished")
            .why(format!(
                "it is {}, with {} not finished",
                runs::status_word(run),
                count(waiting, "shard")
            ))),
        (1.., false) => Err(not_finished(leaves.is_leased())),
    }
}

fn not_finished(is_worked_on: bool) -> Failure {
    Failure::new(Code::Usage, "the run is not finished").next(match is_worked_on {
        true => "wait for its workers, then run the same command again",
        false => "no worker is active: repeat its command, or run gossip worker RUN",
    })
}

fn check(certificate: impl BufRead, against: Against<'_>) -> Result<Verification, Failure> {
    verify(certificate, against)
        .map_err(|refusal| Failure::new(Code::Internal, "the certificate is rejected").why(refusal))
}

/// The subject of a comparison with a source, as the user knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// A run of the store. Its certificate is temporary and has no line to look up.
    Run,
    /// The file of a certificate.
    File,
}

fn against_source(
    certificate: impl BufRead,
    (source, proof): (&Source, Proof),
    key: Option<&SigningKey>,
    console: &Console,
) -> Result<Verification, Failure> {
    let connector = recount(source).map_err(|error| {
        Failure::new(Code::Usage, "the source cannot be opened")
            .why(error)
            .next("compare on a machine that has the same files at the same path")
    })?;
    // The number is not compared: a source does not know which run covered it.
    let request = Request::new(RunId::from_raw(0), source);
    let against = Against::ITSELF.with_source(&request, &*connector);
    let against = key.map_or(against, |key| against.with_key(key));
    let mut differences = Differences::default();
    verify_with_differences(certificate, against, &mut differences).map_err(|refusal| {
        let rejected = Failure::new(Code::Internal, "the certificate is rejected");
        match refusal {
            Refusal::CountDiffers { .. } | Refusal::KeysDiffer { .. } => {
                for line in difference_lines(&differences, source.key_format(), proof) {
                    console.problem(&line);
                }
                match proof {
                    Proof::File => {
                        let leaves = count(differences.count, "leaf").replace("leafs", "leaves");
                        rejected.why(format!("the source has other keys in {leaves}"))
                    }
                    Proof::Run => Failure::new(
                        Code::Internal,
                        "the source is not the one that the run has processed",
                    )
                    .why(format!("it now has {}", difference_text(&differences)))
                    .next("if that is right, repeat the command of the run with --restart"),
                }
            }
            // The runtime's enum may grow.
            refusal => rejected.why(refusal),
        }
    })
}

/// Counts the items by which a source differs: `2 items more, in 1 range`.
fn difference_text(differences: &Differences) -> String {
    let ranges = count(differences.count, "range");
    // Of those that are not listed only the number is known.
    if differences.count > differences.listed.len() as u64 {
        return format!("other items in {ranges}");
    }
    let sum = |of: fn(&LeafDifference) -> u64| differences.listed.iter().map(of).sum::<u64>();
    let more = sum(|leaf| leaf.found.saturating_sub(leaf.stated));
    let fewer = sum(|leaf| leaf.stated.saturating_sub(leaf.found));
    let texts = [(more, "more"), (fewer, "fewer")].into_iter().filter(|(number, _)| *number > 0);
    let texts = texts.map(|(number, word)| format!("{} {word}", count(number, "item")));
    match texts.collect::<Vec<_>>().join(" and ") {
        text if text.is_empty() => format!("other items in {ranges}"),
        text => format!("{text}, in {ranges}"),
    }
}

/// Describes each listed leaf that differs, and counts the others.
fn difference_lines(differences: &Differences, format: KeyFormat, proof: Proof) -> Vec<String> {
    let line = |leaf: &LeafDifference| {
        let range = output::range_text(&leaf.start, &leaf.end, format);
        let LeafDifference { leaf: number, stated, found, .. } = *leaf;
        match (proof, stated == found) {
            (Proof::Run, true) => format!("{range}: {} as then, but others", count(found, "item")),
            (Proof::Run, false) => {
                format!("{range}: {} then, {} now", count(stated, "item"), output::number(found))
            }
            (Proof::File, true) => {
                format!("leaf {number}, {range}: {} as stated, but others", count(found, "key"))
            }
            (Proof::File, false) => format!(
                "leaf {number}, {range}: {} stated, {} in the source",
                count(stated, "key"),
                output::number(found)
            ),
        }
    };
    let mut lines: Vec<String> = differences.listed.iter().map(line).collect();
    let more = differences.count - differences.listed.len() as u64;
    if more > 0 {
        lines.push(format!("and {} more", output::number(more)));
    }
    lines
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
    // The options agree, so the difference is in the source.
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

/// A certificate on its way: in a temporary file, because it may be larger than the memory, and
/// must be verified before it is used.
struct Spool {
    file: File,
    /// Its name, if it will be renamed; removed on drop.
    path: Option<PathBuf>,
}

impl Spool {
    /// Creates a file beside `to`, or one without a name.
    fn new(to: Option<&Path>) -> io::Result<Self> {
        let mut path = match to {
            Some(to) => to.as_os_str().to_owned(),
            None => std::env::temp_dir().join("gossip-certificate").into_os_string(),
        };
        path.push(format!(".{}.tmp", std::process::id()));
        let path = PathBuf::from(path);
        let mut options = File::options();
        options.read(true).write(true);
        // Not through a link that another user has put into the directory of temporary files.
        let file = match to {
            Some(_) => options.create(true).truncate(true).open(&path)?,
            None => options.create_new(true).mode(0o600).open(&path)?,
        };
        let mut spool = Self { file, path: Some(path) };
        if to.is_none() {
            spool.remove();
        }
        Ok(spool)
    }

    fn writer(&self) -> BufWriter<&File> {
        BufWriter::new(&self.file)
    }

    /// Returns its content from the beginning.
    fn open(&mut self) -> io::Result<BufReader<&File>> {
        self.file.rewind()?;
        Ok(BufReader::new(&self.file))
    }

    /// Gives the file its name, or copies it if `to` cannot be replaced.
    fn finish(mut self, to: &Path) -> io::Result<()> {
        match &self.path {
            Some(path) => {
                // Before the rename, or a crash could leave the name with an empty file.
                self.file.sync_all()?;
                std::fs::rename(path, to)?;
                self.path = None;
                Ok(())
            }
            // Such a file is a device or a pipe.
            None => self.copy_to(&mut File::options().write(true).open(to)?),
        }
    }

    fn copy_to(&mut self, out: &mut impl io::Write) -> io::Result<()> {
        io::copy(&mut self.open()?, out)?;
        out.flush()
    }

    fn remove(&mut self) {
        if let Some(path) = self.path.take() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.remove();
    }
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
        // One byte more than allowed shows that it is too long.
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
    let command = found.request.command.iter().map(|word| progress::escaped(word));
    let stated = |wanted: &str| {
        let mut settings = found.request.settings.iter();
        settings.find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
    };
    let record = Record::new()
        .with("verdict", if found.is_complete() { "complete" } else { "incomplete" })
        .with("trust", trust)
        .with("compared", found.is_compared)
        .with("run", format!("{:016x}", found.request.run.as_raw()))
        .with_bytes(["source", "source_hex"], source.as_bytes())
        .with("options", or_none(chosen(&found.request.options)))
        .with("excluded", or_none(found.request.excluded.join("; ")))
        .with("command", command.collect::<Vec<_>>())
        .with("started", stated("started"))
        .with("completed", stated("completed"))
        .with("keys", found.keys)
        .with("unread", found.unread)
        .with("done", found.done)
        .with("parked", found.parked);
    output::one(global.output, &record)?;
    console.note(&summary(found));
    Ok(code_of(found))
}

/// Returns what a verification found, in one line.
pub(crate) fn summary(found: &Verification) -> String {
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
