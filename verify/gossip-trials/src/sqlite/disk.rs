//! A model of a disk: the states in which a power cut may leave the files of a directory.
//!
//! A synced step is durable. Of the steps since the last sync of a file any subset may have reached
//! the disk, and a write may be torn between sectors. A failed sync promises nothing for ever: the
//! system may have dropped the pages, and a later sync that succeeds does not write them again. A
//! name is durable with the first sync of its file, and a deletion with a sync of the directory.

use std::collections::BTreeMap;

use gossip_testkit::recording_vfs::Step;

use gossip_testkit::Rng;

/// The unit in which a disk writes: a torn write ends between two of them.
const SECTOR: u64 = 512;

/// The files of an image, by name.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

/// Which of the steps that were not synced reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Luck {
    Nothing,
    Everything,
    /// Each step with equal chances, and one write in four torn.
    Random,
}

/// The files of a directory at one step of a record.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<String, File>,
}

#[derive(Debug, Default)]
struct File {
    /// The bytes that are certainly on the disk, if the file is.
    durable: Option<Vec<u8>>,
    pending: Vec<Pending>,
}

/// A step that no successful sync covers.
#[derive(Clone, Debug)]
struct Pending {
    change: Change,
    /// Whether a sync of it failed, so that a later one does not cover it.
    is_doubtful: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { len: u64 },
    Delete,
}

impl Disk {
    /// Applies a step. `rng` decides which doubtful steps a successful sync finds on the disk.
    pub(crate) fn apply(&mut self, step: &Step, rng: &mut Rng) {
        match step {
            Step::Write { file, offset, bytes } => {
                self.add(file, Change::Write { offset: *offset, bytes: bytes.clone() });
            }
            Step::Truncate { file, len } => self.add(file, Change::Truncate { len: *len }),
            Step::Delete { file, is_durable: false } => self.add(file, Change::Delete),
            Step::Delete { file, is_durable: true } => {
                self.files.remove(file);
            }
            Step::Sync { file, succeeded: true, with_directory } => {
                if *with_directory {
                    self.files.values_mut().for_each(File::sync_deletions);
                }
                let file = self.files.entry(file.clone()).or_default();
                file.durable = file.image(&mut |change| !change.is_doubtful || rng.below(2) > 0);
                file.pending.clear();
                file.durable.get_or_insert_default();
            }
            Step::Sync { file, succeeded: false, .. } => {
                let file = self.files.entry(file.clone()).or_default();
                file.pending.iter_mut().for_each(|change| change.is_doubtful = true);
            }
            Step::Mark(_) => {}
        }
    }

    fn add(&mut self, file: &str, change: Change) {
        let file = self.files.entry(file.to_owned()).or_default();
        file.pending.push(Pending { change, is_doubtful: false });
    }

    /// Returns whether a power cut now can leave one state only.
    pub(crate) fn is_settled(&self) -> bool {
        self.files.values().all(|file| file.pending.is_empty())
    }

    /// Returns the files after a power cut now.
    pub(crate) fn image(&self, luck: Luck, rng: &mut Rng) -> Image {
        let mut image = Image::new();
        for (name, file) in &self.files {
            let bytes = match luck {
                Luck::Nothing => file.durable.clone(),
                Luck::Everything => file.image(&mut |_| true),
                Luck::Random => file.torn(rng).image(&mut |_| rng.below(2) > 0),
            };
            image.extend(bytes.map(|bytes| (name.clone(), bytes)));
        }
        image
    }
}

impl File {
    /// Makes deletions durable: only changes of the file that has the name now are pending.
    fn sync_deletions(&mut self) {
        let deleted = self.pending.iter().rposition(|it| matches!(it.change, Change::Delete));
        if let Some(deleted) = deleted {
            self.pending.drain(..=deleted);
            self.durable = None;
        }
    }

    /// Returns the content if exactly the pending steps that `is_kept` selects reached the disk.
    fn image(&self, is_kept: &mut impl FnMut(&Pending) -> bool) -> Option<Vec<u8>> {
        let mut bytes = self.durable.clone();
        for pending in &self.pending {
            let kept = is_kept(pending);
            match &pending.change {
                // Later steps belong to a new file, and the name still leads to the old one.
                Change::Delete if !kept => return bytes,
                Change::Delete => bytes = None,
                _ if !kept => {}
                Change::Write { offset, bytes: written } => {
                    write(bytes.get_or_insert_default(), *offset, written);
                }
                Change::Truncate { len } => resize(bytes.get_or_insert_default(), *len),
            }
        }
        bytes
    }

    /// Returns the file with some pending writes reduced to a part of their sectors.
    fn torn(&self, rng: &mut Rng) -> Self {
        let mut pending = Vec::new();
        for step in &self.pending {
            match &step.change {
                Change::Write { offset, bytes } if rng.below(4) == 0 => {
                    let is_doubtful = step.is_doubtful;
                    let kept = sectors(*offset, bytes).filter(|_| rng.below(2) > 0);
                    pending.extend(kept.map(|change| Pending { change, is_doubtful }));
                }
                _ => pending.push(step.clone()),
            }
        }
        Self { durable: self.durable.clone(), pending }
    }
}

/// Cuts a write where the disk's sectors end.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = Change> {
    let end = offset + bytes.len() as u64;
    let (first, last) = (offset / SECTOR, end.div_ceil(SECTOR));
    (first..last).map(move |sector| {
        let from = (sector * SECTOR).max(offset);
        let to = ((sector + 1) * SECTOR).min(end);
        let part = &bytes[index(from - offset)..index(to - offset)];
        Change::Write { offset: from, bytes: part.to_vec() }
    })
}

fn write(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (from, to) = (index(offset), index(offset) + bytes.len());
    if file.len() < to {
        file.resize(to, 0);
    }
    file[from..to].copy_from_slice(bytes);
}

fn resize(file: &mut Vec<u8>, len: u64) {
    file.resize(index(len), 0);
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a recorded file fits in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(words: &str) -> Step {
        let file = "f".to_owned();
        match words.split_once(' ').unwrap_or((words, "")) {
            ("write", text) => Step::Write { file, offset: 0, bytes: text.as_bytes().to_vec() },
            ("truncate", len) => Step::Truncate { file, len: len.parse().unwrap() },
            ("sync", _) => Step::Sync { file, succeeded: true, with_directory: false },
            ("sync-all", _) => {
                Step::Sync { file: "another".to_owned(), succeeded: true, with_directory: true }
            }
            ("lost-sync", _) => Step::Sync { file, succeeded: false, with_directory: false },
            ("delete", _) => Step::Delete { file, is_durable: false },
            ("remove", _) => Step::Delete { file, is_durable: true },
            other => panic!("{other:?}"),
        }
    }

    /// All contents that two hundred power cuts leave; `-` for no file.
    fn contents(steps: &[&str]) -> Vec<String> {
        let mut found = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let (mut disk, mut rng) = (Disk::default(), Rng::seeded(seed));
            steps.iter().for_each(|words| disk.apply(&step(words), &mut rng));
            for luck in [Luck::Nothing, Luck::Everything, Luck::Random] {
                let image = disk.image(luck, &mut rng);
                found.insert(image.get("f").map_or_else(
                    || "-".to_owned(),
                    |bytes| String::from_utf8(bytes.clone()).unwrap(),
                ));
            }
        }
        found.into_iter().collect()
    }

    #[test]
    fn synced_bytes_stay() {
        assert_eq!(contents(&["write a", "sync"]), ["a"]);
    }

    #[test]
    fn unsynced_writes_reach_the_disk_in_any_subset() {
        assert_eq!(contents(&["write a", "write b"]), ["-", "a", "b"]);
        assert_eq!(
            contents(&["write ab", "sync", "write c", "truncate 1"]),
            ["a", "ab", "c", "cb"]
        );
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_a_later_one() {
        assert_eq!(contents(&["write ab", "lost-sync", "sync"]), ["", "ab"]);
        assert_eq!(contents(&["write ab", "lost-sync", "write c", "sync"]), ["c", "cb"]);
    }

    #[test]
    fn a_deleted_file_may_return_until_the_deletion_is_synced() {
        assert_eq!(contents(&["write a", "sync", "delete", "write b"]), ["-", "a", "b"]);
        assert_eq!(contents(&["write a", "sync", "delete", "write b", "sync"]), ["b"]);
        assert_eq!(contents(&["write a", "sync", "delete", "write b", "sync-all"]), ["-", "b"]);
        assert_eq!(contents(&["write a", "sync", "remove"]), ["-"]);
    }

    #[test]
    fn a_torn_write_ends_between_sectors() {
        let long = ["x".repeat(512), "y".repeat(512)].concat();
        let found = contents(&["write ", "sync", &format!("write {long}")]);
        assert!(found.contains(&"x".repeat(512)), "the first sector alone");
        assert!(found.contains(&format!("{}{}", "\0".repeat(512), "y".repeat(512))));
        assert_eq!(found.len(), 4, "nothing, both, and each sector");
    }
}
