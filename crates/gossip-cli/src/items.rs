//! Items as users type them and as they are shown: `photos/a.jpg`, `urls.txt:2`, the text of a
//! line.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use gossip::connector::{CheckedEnumeration, Connector, Page, PageItem};
use gossip::coordination::{FailureRecord, ShardSummary};
use gossip::model::CursorUpdate;
use gossip::sources::{ItemNames, KeyFormat, LineEnd, Source, parse_row_key, row_key};

use crate::{output, runs, spool};

/// Standard input in the name of an item. A name that begins with `-` could not be typed.
const STDIN: &str = "stdin";

/// Returns how the items of a source are named. `typed` is the source as it was typed, if it was.
pub(crate) fn names(source: &Source, typed: Option<&OsStr>) -> ItemNames {
    let names = ItemNames::of(source);
    match (source, typed) {
        (Source::Lines { path, end }, _) if spool::is_list(path.as_os_str()) => match end {
            // The file has a hash as its name, which the user has never seen.
            LineEnd::Feed => names.as_typed(OsStr::new(STDIN)),
            LineEnd::Nul => names.by_text(),
        },
        (_, Some(typed)) => names.as_typed(typed),
        (_, None) => names,
    }
}

/// The items of a run, as far as its shards describe their source.
pub(crate) struct RunItems {
    source: Option<Source>,
    format: KeyFormat,
    /// `None` if the source has changed, so that positions mean other items now.
    names: Option<ItemNames>,
}

impl RunItems {
    /// Reads the source from shards of the run.
    pub(crate) fn of(rows: &[ShardSummary]) -> Self {
        let source = runs::source_of(rows);
        let format = runs::key_format(rows);
        let stamp = runs::stored_job(rows).and_then(|job| job.stamp);
        let is_same = |source: &&Source| source.check_stamp(stamp).is_ok();
        let names = source.as_ref().filter(is_same).map(|source| names(source, None));
        Self { source, format, names }
    }

    /// Returns the text of a key.
    pub(crate) fn text(&self, key: &[u8]) -> Vec<u8> {
        self.format.text(key).into_owned()
    }

    /// Returns the name of an item with a failure record: as its worker named it, if it did.
    pub(crate) fn name(&self, record: &FailureRecord) -> String {
        // The worker saw the source as it was then; this host may not have it.
        if !record.place.is_empty() {
            return output::readable(record.place.as_bytes());
        }
        match &self.names {
            Some(names) => output::readable(&names.name(&record.key)),
            None => output::readable(&self.format.text(&record.key)),
        }
    }

    /// Returns whether the typed text is of this failed item: its name, its key, or for a line its
    /// text or its place.
    pub(crate) fn is_named(&self, record: Option<&FailureRecord>, name: &str, typed: &str) -> bool {
        let text = record.map(|record| self.text(&record.key));
        if name == typed || text.is_some_and(|text| text == typed.as_bytes()) {
            return true;
        }
        let Some((file, number, text)) = parts(name).filter(|_| self.has_places()) else {
            return false;
        };
        let is_place = |(typed, its): (&str, u64)| its == number && is_same_file(typed, file);
        text == typed || place(typed).is_some_and(is_place)
    }

    /// Returns the shortest name that can be typed: a line without its text.
    pub(crate) fn short(&self, name: &str) -> String {
        match parts(name).filter(|_| self.has_places()) {
            Some((file, number, _)) => format!("{file}:{number}"),
            None => name.to_owned(),
        }
    }

    /// Returns the key of an item as it is typed.
    pub(crate) fn key_of(&self, typed: &OsStr) -> Option<Vec<u8>> {
        key_of(self.source.as_ref()?, typed)
    }

    /// Returns whether items are named by the place in their file.
    fn has_places(&self) -> bool {
        match &self.source {
            Some(Source::Lines { path, end }) => {
                *end == LineEnd::Feed || !spool::is_list(path.as_os_str())
            }
            Some(Source::Manifest { .. }) => true,
            _ => false,
        }
    }
}

/// Splits `urls.txt:2 https://bad/2` into the file, the number and the text.
fn parts(name: &str) -> Option<(&str, u64, &str)> {
    name.match_indices(':').find_map(|(colon, _)| {
        let rest = &name[colon + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, text) = rest.split_at(digits);
        let text = if text.is_empty() { text } else { text.strip_prefix(' ')? };
        Some((&name[..colon], number.parse().ok()?, text))
    })
}

/// Reads `FILE:N`, also with the text behind it.
fn place(typed: &str) -> Option<(&str, u64)> {
    parts(typed).map(|(file, number, _)| (file, number))
}

/// Returns whether two paths may be of one file: as seen from different directories.
fn is_same_file(one: &str, other: &str) -> bool {
    one == other || Path::new(one).file_name() == Path::new(other).file_name()
}

/// Returns the key of an item as it is typed: a path as seen from here or from the directory of
/// the source, a number, the text of a line, or `FILE:LINE`.
pub(crate) fn key_of(source: &Source, typed: &OsStr) -> Option<Vec<u8>> {
    match source {
        Source::Tree { root, .. } => path_key(root, Path::new(typed)),
        Source::Lines { path, .. } | Source::Manifest { path, .. } => {
            let number = number(path, typed);
            // The text first: a line may be a number, too.
            row_with_text(source, typed.as_bytes(), number).or_else(|| match source {
                Source::Manifest { .. } => Some(row_key(number?).to_vec()),
                _ => None,
            })
        }
        // The runtime's enum may grow.
        _ => source.key_format().parse(typed.as_bytes()),
    }
}

/// Returns the key of a path below `root`. Of several meanings that of an existing file is chosen.
fn path_key(root: &Path, typed: &Path) -> Option<Vec<u8>> {
    let key = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let below = |path: PathBuf| path.strip_prefix(root).ok().map(key);
    // The root was resolved when the run was created; the file itself may be a link.
    let resolved = || {
        let parent = typed.parent()?;
        let is_here = parent.as_os_str().is_empty();
        let parent = if is_here { Path::new(".") } else { parent }.canonicalize().ok()?;
        Some(parent.join(typed.file_name()?))
    };
    let here = std::path::absolute(typed).ok().and_then(below);
    // Only then: it reads the disk, and the text alone fits most of the time.
    let here = here.or_else(|| resolved().and_then(below));
    if typed.is_absolute() {
        return here;
    }
    let own: PathBuf = typed.components().filter(|part| *part != Component::CurDir).collect();
    // As it is seen from the directory that holds the source.
    let behind_name = root.file_name().and_then(|name| own.strip_prefix(name).ok()).map(key);
    let mut meanings = here.clone().into_iter().chain([key(&own)]).chain(behind_name);
    let exists = |key: &Vec<u8>| root.join(OsStr::from_bytes(key)).symlink_metadata().is_ok();
    // A path may be meant from here or from the source; the file that exists decides.
    let found = meanings.find(|key| !key.is_empty() && exists(key));
    found.or(here).or_else(|| Some(key(&own))).filter(|key| !key.is_empty())
}

/// Reads `N`, or `FILE:N` with the file at `path`.
fn number(path: &Path, typed: &OsStr) -> Option<u64> {
    let text = typed.to_str()?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (file, number) = place(text)?;
    let is_list = || file == STDIN && spool::is_list(path.as_os_str());
    let is_it = Path::new(file).file_name() == path.file_name() || is_list();
    is_it.then_some(number)
}

/// Returns the key of the first row with this text, or of that with this number, by a listing: keys
/// of lines are positions.
fn row_with_text(source: &Source, text: &[u8], number: Option<u64>) -> Option<Vec<u8>> {
    let connector = source.open().ok()?;
    let root = source.root();
    let mut listing =
        CheckedEnumeration::open(&*connector, root.as_spec_ref(), CursorUpdate::initial()).ok()?;
    let is_numbered = matches!(source, Source::Manifest { .. });
    let (mut page, mut before, mut numbered) = (Page::default(), 0, None);
    loop {
        listing.next_page(&mut page).ok()?;
        for item in page.items() {
            before += 1;
            let its = if is_numbered { parse_row_key(item.key()) } else { Some(before) };
            if number.is_some() && number == its {
                numbered = Some(item.key().to_vec());
            }
            // Only a row of the same length is read.
            if item.size_hint() == Some(text.len() as u64) && has_text(&*connector, item, text) {
                // The text of a row precedes its number, whichever comes first in the file.
                return Some(item.key().to_vec());
            }
        }
        if page.is_exhausted() {
            return numbered;
        }
    }
}

fn has_text(connector: &dyn Connector, item: PageItem<'_>, text: &[u8]) -> bool {
    let (mut scratch, mut body) = (Vec::new(), Vec::with_capacity(text.len() + 1));
    let Ok(opened) = connector.open(item, &mut scratch) else { return false };
    // One byte more than expected shows a longer row without reading all of it.
    let read = opened.take(text.len() as u64 + 1).read_to_end(&mut body);
    read.is_ok() && body == text
}

#[cfg(test)]
#[path = "items_tests.rs"]
mod tests;
