//! Sources that are lists: standard input, several paths, patterns.
//!
//! A list is written to a file in the state directory before the run is created, because a run
//! resumes at positions of its source. The file has the hash of its content as its name, so the
//! same list again is the same source, and the same command resumes. Workers of other hosts do not
//! have the file.
//!
//! A file that is being written has no name, so an interrupted command leaves nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};

use crate::args::JobArgs;
use crate::console::Console;
use crate::doctor::Space;
use crate::failure::{Code, Failure};
use crate::{output, progress, store};

/// Directory of lists below the state directory; a source below it is one of this host.
pub(crate) const DIRECTORY: &str = "lists";

/// After so long without a byte a message says that input is awaited.
const SILENCE: Duration = Duration::from_secs(2);

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

/// The disk is looked at after so many bytes.
const CHECK_EVERY: u64 = 64 << 20;

/// A list is not written below this many free bytes: the store needs some, and a list that never
/// ends must not fill the disk.
const FREE_MIN: u64 = 256 << 20;

/// Matches of a pattern: more are a list for a file.
const MATCHES_MAX: usize = 10_000_000;

/// Standard input.
const STDIN: &str = "-";

/// Returns the source that the arguments name: a single one as it was typed, a list otherwise.
pub(crate) fn source_of(args: &JobArgs, console: &Console) -> Result<OsString, Failure> {
    let stdin = || of_stdin(args.null, console);
    match args.source.as_slice() {
        [] if args.null => stdin(),
        [] => Err(Failure::new(Code::Usage, "no source given")
            .next("give a directory, a file, a range, or - for standard input")),
        // Before the patterns and schemes: a file called `-` is written `./-`.
        [one] if one == STDIN => stdin(),
        [_] if args.null => Err(Failure::new(Code::Usage, "-0 is for standard input")
            .next("for a file whose items end with a zero byte: lines0:FILE")),
        [one] => match one.as_bytes().strip_prefix(b"@") {
            Some(list) => Ok(OsString::from_vec([b"lines:", list].concat())),
            None => match matches_of(one)? {
                Some(paths) => of_paths(&paths),
                None => Ok(one.clone()),
            },
        },
        several => of_paths(&expanded(several)?),
    }
}

/// Expands the patterns among several paths; each other one must exist.
fn expanded(typed: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut paths = Vec::new();
    for one in typed {
        match matches_of(one)? {
            Some(found) => paths.extend(found),
            // The link itself is looked at: one that leads nowhere fails later, with its own
            // error.
            None if Path::new(one).symlink_metadata().is_ok() => paths.push(one.clone()),
            None => {
                let shown = progress::escaped(one.as_bytes());
                return Err(Failure::new(
                    Code::Usage,
                    format!("{shown}: no such file or directory"),
                )
                .why("several sources must be files or directories")
                .next("give one source, or paths only; the command follows after --"));
            }
        }
    }
    Ok(paths)
}

/// Returns the paths that a pattern matches; `None` if the text is no pattern.
fn matches_of(typed: &OsStr) -> Result<Option<Vec<OsString>>, Failure> {
    let is_pattern = typed.as_bytes().iter().any(|byte| b"*?[".contains(byte));
    // A file with such a name is that file.
    if !is_pattern || Path::new(typed).symlink_metadata().is_ok() || has_scheme(typed) {
        return Ok(None);
    }
    let shown = progress::escaped(typed.as_bytes());
    let refused =
        |why: String| Failure::new(Code::Usage, format!("invalid pattern `{shown}`")).why(why);
    let text = typed.to_str().ok_or_else(|| refused("it is not UTF-8".to_owned()))?;
    let found = glob::glob(text).map_err(|error| refused(error.to_string()))?;
    let mut paths = Vec::new();
    // Bounded, because all matches are held in memory to be written.
    for path in found.take(MATCHES_MAX) {
        // A directory that cannot be read is an error: its files would be missing without a word.
        let path = path.map_err(|error| {
            Failure::new(
                Code::Usage,
                format!("cannot read {}", progress::escaped(error.path().as_os_str().as_bytes())),
            )
            .why(error.error())
        })?;
        paths.push(path.into_os_string());
    }
    if paths.len() == MATCHES_MAX {
        return Err(refused(format!("it matches {MATCHES_MAX} files or more"))
            .next("give the directory as source, or a list: lines0:FILE"));
    }
    if paths.is_empty() {
        return Err(Failure::new(Code::Usage, format!("no file matches {shown}"))
            .next("check the pattern; a directory as source means every file below it"));
    }
    Ok(Some(paths))
}

fn has_scheme(typed: &OsStr) -> bool {
    // The question mark of a table is no pattern.
    let schemes = [
        "tree:",
        "lines:",
        "lines0:",
        "jsonl:",
        "csv:",
        "range:",
        "git:",
        "sqlite:",
        "postgres:",
        "s3:",
    ];
    schemes.iter().any(|scheme| typed.as_bytes().starts_with(scheme.as_bytes()))
}

/// Writes a list of paths: files as they are, and the files below directories.
fn of_paths(paths: &[OsString]) -> Result<OsString, Failure> {
    let mut list = List::new()?;
    let mut items = Vec::new();
    for path in paths {
        files_below(Path::new(path), &mut items)?;
    }
    for item in items {
        list.write(item.as_os_str().as_bytes())?;
        list.write(b"\0")?;
    }
    list.finish("lines0:")
}

/// Appends a path, or the paths of all files below it in the order of names. Symbolic links are
/// not followed, as in a directory that is a source.
fn files_below(path: &Path, items: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |path: &Path, error: &io::Error| {
        let shown = progress::escaped(path.as_os_str().as_bytes());
        Failure::new(Code::Usage, format!("cannot read {shown}")).why(error)
    };
    // A link that was typed is followed, and may lead to a directory.
    let is_directory = std::fs::metadata(path).map_err(|error| failed(path, &error))?.is_dir();
    if !is_directory {
        items.push(path.to_owned());
        return Ok(());
    }
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = std::fs::read_dir(&directory).map_err(|error| failed(&directory, &error))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(&directory, &error))?;
            let kind = entry.file_type().map_err(|error| failed(&entry.path(), &error))?;
            names.push((entry.path(), kind));
        }
        // The order of a directory differs between reads, and the hash of the list must not.
        names.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (directories, files): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|(_, kind)| kind.is_dir());
        items.extend(files.into_iter().filter(|(_, kind)| kind.is_file()).map(|(path, _)| path));
        // Reversed, because the last one is taken first.
        waiting.extend(directories.into_iter().rev().map(|(path, _)| path));
    }
    Ok(())
}

/// Writes standard input to its end.
fn of_stdin(null: bool, console: &Console) -> Result<OsString, Failure> {
    let mut list = List::new()?;
    let (mut input, mut chunk) = (io::stdin().lock(), vec![0; CHUNK]);
    let mut is_printed = false;
    loop {
        // Without a message a user who forgot the input would wait for a command that waits for
        // him.
        if !is_printed && !is_ready(&input) {
            console.note(
                "reading items from standard input; the run starts at its end. \
                 Ctrl-C leaves nothing behind",
            );
            is_printed = true;
        }
        match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => list.write(&chunk[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Failure::new(Code::Usage, "cannot read standard input").why(error));
            }
        }
    }
    let scheme = if null { "lines0:" } else { "lines:" };
    let bytes = list.len;
    // The command before the pipe may have failed: its exit status is not seen here.
    if bytes == 0 {
        console.problem("the source is empty: standard input ended without an item");
    }
    let source = list.finish(scheme)?;
    console.detail(&format!("{} of standard input are kept", output::count(bytes, "byte")));
    Ok(source)
}

/// Waits a moment for input.
fn is_ready(input: &io::StdinLock<'_>) -> bool {
    let timeout = Timespec::try_from(SILENCE).ok();
    let polled = poll(&mut [PollFd::new(input, PollFlags::IN)], timeout.as_ref());
    // An error is reported by the read.
    !matches!(polled, Ok(0))
}

/// A list on its way to its file.
struct List {
    file: BufWriter<File>,
    /// Whether the file has no name yet.
    is_unnamed: bool,
    directory: PathBuf,
    hasher: blake3::Hasher,
    len: u64,
    /// The length at which the disk is looked at again.
    check_at: u64,
}

impl List {
    fn new() -> Result<Self, Failure> {
        let directory = store::state_directory()?.join(DIRECTORY);
        // For this user only: names of files may be confidential.
        store::create_private(&directory).map_err(|error| unwritten(&directory, &error))?;
        let (file, is_unnamed) =
            unnamed_file(&directory).map_err(|error| unwritten(&directory, &error))?;
        let hasher = blake3::Hasher::new();
        let (len, check_at) = (0, 0);
        Ok(Self { file: BufWriter::new(file), is_unnamed, directory, hasher, len, check_at })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        // Not at each write: the call costs more than the bytes of a chunk.
        if self.len >= self.check_at {
            self.check_at = self.len + CHECK_EVERY;
            let space = Space::at(&self.directory);
            if let Some(space) = space.filter(|space| space.free < FREE_MIN) {
                return Err(Failure::new(
                    Code::Usage,
                    "the list of items does not fit on the disk",
                )
                .why(format!("{space}; nothing was kept"))
                .next("give a file as source: lines:FILE"));
            }
        }
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| unwritten(&self.directory, &error))
    }

    /// Gives the file its name and returns it as a source.
    fn finish(self, scheme: &str) -> Result<OsString, Failure> {
        let Self { file, is_unnamed, directory, hasher, .. } = self;
        let failed = |error: &io::Error| unwritten(&directory, error);
        let mut file = file.into_inner().map_err(|error| failed(error.error()))?;
        // Before it has its name: after a crash a name must not lead to a part of the list.
        file.sync_all().map_err(|error| failed(&error))?;
        let path = directory.join(hasher.finalize().to_hex().as_str());
        let text = |path: PathBuf| {
            let bytes = [scheme.as_bytes(), path.into_os_string().as_bytes()].concat();
            OsString::from_vec(bytes)
        };
        // The same list was given before; its modification time must not change, because it is
        // compared when the run resumes.
        if !path.try_exists().map_err(|error| failed(&error))? {
            let linked = match is_unnamed {
                true => link(&file, &path),
                false => copy(&mut file, &path),
            };
            match linked {
                // Another process was faster with the same list.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                linked => linked.map_err(|error| failed(&error))?,
            }
        }
        // Also if the file existed: a run names it, so it must survive a crash as the run does, and
        // the command that gave the name may have been killed before it synced the directory.
        File::open(&directory).and_then(|it| it.sync_all()).map_err(|error| failed(&error))?;
        Ok(text(path))
    }
}

/// Opens a file that disappears if it is not linked. Returns whether it can be linked.
fn unnamed_file(directory: &Path) -> io::Result<(File, bool)> {
    #[cfg(target_os = "linux")]
    {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR) {
            return Ok((File::from(file), true));
        }
    }
    // A file system without unnamed files: the name is removed at once, and the list is copied.
    let path = directory.join(format!(".{}", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    // At once, so that a killed command leaves nothing.
    std::fs::remove_file(&path)?;
    Ok((file, false))
}

/// Gives an unnamed file a name that nothing has.
fn link(file: &File, path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // Linking by descriptor alone needs a privilege.
    let open = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn copy(file: &mut File, path: &Path) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    file.rewind()?;
    let mut options = File::options();
    let mut to = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    let copied = io::copy(file, &mut to).and_then(|_| to.sync_all());
    // The same name has the same content, so it does not matter whose file stays.
    let named = copied.and_then(|()| std::fs::rename(&temporary, path));
    if named.is_err() {
        // A part of the list must not stay, and the first error is the one to report.
        drop(std::fs::remove_file(&temporary));
    }
    named
}

fn unwritten(directory: &Path, error: &io::Error) -> Failure {
    let shown = progress::escaped(directory.as_os_str().as_bytes());
    Failure::new(Code::Usage, format!("the list of items cannot be written to {shown}")).why(error)
}

/// Returns whether a source is a list that some host keeps for itself.
pub(crate) fn is_list(source: &OsStr) -> bool {
    let name = [b"/gossip/", DIRECTORY.as_bytes(), b"/"].concat();
    source.as_bytes().windows(name.len()).any(|part| part == name)
}

/// Describes a list that is not on this host.
pub(crate) fn of_another_host() -> Failure {
    Failure::new(Code::Usage, "the source of the run is not available here")
        .why("it is a list of items that another host keeps, or that was deleted")
        .next(
            "work on the run where it was created; for several hosts write the list to a shared \
             file: lines:FILE",
        )
}
