//! A command as the handler of keys.

use std::ffi::OsString;

use super::{BatchProcessor, ExecConfig, Rendering, StreamProcessor, Template, TemplateError};
use crate::processor::Processor;

/// How a command is run for keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Handler {
    /// Once per batch of keys, which replace `{}` among its arguments.
    Batch(Template),
    /// Kept running, with JSON lines on its standard input and output.
    Stream(Vec<OsString>),
}

impl Handler {
    /// Reads a command; with `stream` it is kept running.
    ///
    /// # Errors
    ///
    /// As [`Template::parse`], unless it is kept running.
    pub fn parse(command: &[OsString], stream: bool) -> Result<Self, TemplateError> {
        Ok(match stream {
            true => Self::Stream(command.to_vec()),
            false => Self::Batch(Template::parse(command)?),
        })
    }

    /// Returns the processor of one worker thread.
    #[must_use]
    pub fn processor(&self, rendering: &Rendering, config: ExecConfig) -> Box<dyn Processor> {
        match self {
            Self::Batch(template) => {
                Box::new(BatchProcessor::new(template.clone(), rendering.clone(), config))
            }
            Self::Stream(command) => {
                Box::new(StreamProcessor::new(command.clone(), rendering.clone(), config))
            }
        }
    }
}
