//! What the handlers share.

use std::sync::Arc;

use crate::desk::DeskHandle;
use crate::limits::Limits;
use crate::security::Hosts;
use crate::state::Shared;
use crate::tokens::Tokens;

/// What the handlers share.
pub(crate) struct App {
    pub(crate) shared: Arc<Shared>,
    pub(crate) desk: DeskHandle,
    pub(crate) tokens: Tokens,
    pub(crate) hosts: Hosts,
    pub(crate) limits: Limits,
}
