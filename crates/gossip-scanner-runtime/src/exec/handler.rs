//! A command as the handler of keys.

use std::ffi::OsString;

use super::{BatchProcessor, ExecConfig, Rendering, StreamProcessor, Template, TemplateError};
use crate::connectors::Source;
use crate::job::StreamFormat;
use crate::processor::Processor;

/// How a command is run for keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Handler {
    /// Once per batch of keys, which replace `{}` among its arguments.
    Batch(Template),
    /// Kept running, with lines on its standard input and output.
    Stream(Vec<OsString>, StreamFormat),
}

impl Handler {
    /// Reads a command for items of `source`; with a `stream` format it is kept running.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if its placeholders cannot be filled from the items of `source`; not if it
    /// is kept running.
    pub fn parse(
        command: &[OsString],
        stream: Option<StreamFormat>,
        source: &Source,
    ) -> Result<Self, TemplateError> {
        Ok(match stream {
            Some(format) => Self::Stream(command.to_vec(), format),
            None => Self::Batch(Template::parse_for(command, source)?),
        })
    }

    /// Returns the processor of one worker thread.
    #[must_use]
    pub fn processor(&self, rendering: &Rendering, config: ExecConfig) -> Box<dyn Processor> {
        match self {
            Self::Batch(template) => {
                Box::new(BatchProcessor::new(template.clone(), rendering.clone(), config))
            }
            Self::Stream(command, format) => {
                let (command, rendering) = (command.clone(), rendering.clone());
                Box::new(StreamProcessor::new(command, *format, rendering, config))
            }
        }
    }
}
