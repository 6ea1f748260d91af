//! A reader of zstd frames, one after the other.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest window that is decoded: the default of every level of the reference encoder.
const WINDOW_MAX: u64 = 8 << 20;
/// Bytes decoded at a time.
const STEP_LEN: usize = 128 << 10;

/// Decompresses all frames of a reader.
pub(super) struct Frames<R> {
    reader: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Frames<R> {
    pub(super) fn new(reader: R) -> Self {
        let mut decoder = FrameDecoder::new();
        // The window is allocated at the start of a frame, so a header alone could ask for
        // gigabytes.
        decoder.set_max_window_size(WINDOW_MAX);
        Self { reader, decoder, in_frame: false }
    }

    /// Begins the next frame; false at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.reader.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.reader) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    // Skippable frames hold data of applications, which no decoder returns.
                    let mut skipped = (&mut self.reader).take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.in_frame && !self.decoder.is_finished() {
                // In steps, so that the limits above apply while a frame is decoded and not behind
                // it.
                let step = BlockDecodingStrategy::UptoBytes(STEP_LEN);
                let decoded = self.decoder.decode_blocks(&mut self.reader, step);
                decoded.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                continue;
            }
            if !self.begin()? {
                return Ok(0);
            }
        }
    }
}
