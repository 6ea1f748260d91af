//! The disk alone: one write of a record's size into a file that is already there, and a flush.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::VALUE_LEN;

/// Bytes of the file that is written round and round. Allocated ahead, so that a flush writes data
/// and no metadata: nothing that stores a record durably can cost less.
const FILE_LEN: u64 = 16 << 20;

pub struct RawFile {
    file: File,
    at: u64,
}

impl RawFile {
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("raw");
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).open(path).unwrap();
        file.write_all(&vec![0; FILE_LEN as usize]).unwrap();
        file.sync_all().unwrap();
        Self { file, at: 0 }
    }

    /// Writes one record and waits until it is on the disk.
    pub fn write(&mut self) {
        self.file.seek(SeekFrom::Start(self.at)).unwrap();
        self.file.write_all(&[7; VALUE_LEN]).unwrap();
        self.file.sync_data().unwrap();
        self.at = (self.at + VALUE_LEN as u64) % (FILE_LEN - VALUE_LEN as u64);
    }
}
