//! What goes wrong between us and the server, and whether a commit may have been applied.
//!
//! A commit is one statement in a transaction of its own. The server sends the rows of its answer
//! *before* it commits, and the message that it is ready for the next statement afterwards: only
//! that one acknowledges the commit.
//!
//! # Which failures are certain
//!
//! A commit certainly was not applied if it was not sent, or if the server reported an error of
//! severity `ERROR` that arises before the commit. The list below names those codes; every other
//! answer, and none, leaves the commit unknown.
//!
//! | what came back | commit | why |
//! |---|---|---|
//! | no connection could be made | certain | nothing was sent |
//! | 40001, 40P01, 55P03, 57014 | certain | conflict, deadlock, lock or statement timeout: before the commit |
//! | 53100, 53200, 53400, 54xxx | certain | no space or memory, a limit: before the commit |
//! | 25006, 42xxx, 3F000, 26000, 0A000, 22xxx, 23xxx, 25001, GS001 | certain | read-only server, no right, no schema, no such statement, bad argument |
//! | XX001, XX002 | certain | damaged page or index, found while it is read |
//! | 57P01, 57P02, 57P03 | unknown | shutdown: perhaps while the commit waits for a standby |
//! | 40003, 08xxx | unknown | the code says so |
//! | severity `FATAL` or `PANIC`, any other code | unknown | |
//! | a success with a warning | unknown | "canceling wait for synchronous replication": a failover may lose it |
//! | connection lost, our own timeout, a caller that is gone | unknown | the server may have it |
//!
//! # Content of messages
//!
//! The text of a server is never repeated: it could quote keys. Its code and the length of its text
//! are shown.

use gossip_coordination::{InfraError, StoreRefusal};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// What the server said, or that it said nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection could be made, so nothing was sent.
    NotConnected {
        /// Why, without any address or name.
        why: String,
    },
    /// The server reported an error.
    Server {
        code: String,
        /// Whether only this statement failed, and not the session.
        is_error: bool,
        text_len: usize,
    },
    /// The connection was lost, or the answer was not understood.
    Lost,
    /// No answer in time.
    Timeout { millis: u64 },
}

impl Failure {
    /// Returns the failure of a statement that may have been sent.
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(error) => Self::of_server(error),
            None => Self::Lost,
        }
    }

    /// Returns the failure to connect.
    pub(crate) fn of_connect(error: &tokio_postgres::Error) -> Self {
        if let Some(error) = error.as_db_error() {
            return Self::of_server(error);
        }
        // The kind of an I/O error names no host, and the text of the library no password.
        let source = std::error::Error::source(error);
        let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
        let why = io.map_or_else(|| "the connection failed".to_owned(), |io| io.kind().to_string());
        Self::NotConnected { why }
    }

    fn of_server(error: &DbError) -> Self {
        let is_error = error.parsed_severity().is_some_and(|severity| severity == Severity::Error);
        let text_len = error.message().len();
        Self::Server { code: error.code().code().to_owned(), is_error, text_len }
    }

    /// Returns whether a commit that failed so was not applied and never will be.
    pub(crate) fn is_certain(&self) -> bool {
        match self {
            Self::NotConnected { .. } => true,
            // `FATAL` ends the session, perhaps after the commit, so the code alone does not make
            // it certain.
            Self::Server { code, is_error, .. } => *is_error && is_before_commit(code),
            Self::Lost | Self::Timeout { .. } => false,
        }
    }

    /// Returns whether the same statement may well succeed at once.
    pub(crate) fn is_contention(&self) -> bool {
        let codes = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        matches!(self, Self::Server { code, .. } if codes.iter().any(|it| it.code() == code))
    }

    /// Returns whether the server has waited for a lock, or for something else, for too long.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, Self::Server { code, .. } if ["55P03", "57014"].contains(&&**code))
    }

    /// Returns whether one transaction of a batch may have caused it, so that the others may
    /// succeed without it.
    pub(crate) fn concerns_one(&self) -> bool {
        matches!(self, Self::Server { is_error: true, .. })
    }

    /// Returns whether the session can be used for another statement.
    pub(crate) fn keeps_session(&self) -> bool {
        // A session that met a read-only server is closed, to look for the primary.
        matches!(self, Self::Server { is_error: true, code, .. }
            if !["25006", "26000", "0A000"].contains(&&**code))
    }

    /// Returns the error for a caller. `operation` is the step that failed.
    pub(crate) fn into_infra(self, operation: &'static str) -> InfraError {
        let message = self.message();
        let transient = || InfraError::Transient { operation, message: message.clone() };
        let refused = |why| InfraError::Refused { operation, why, message: message.clone() };
        let Self::Server { code, .. } = &self else { return transient() };
        match &**code {
            "53100" => refused(StoreRefusal::NoSpace),
            "25006" => refused(StoreRefusal::ReadOnly),
            "42501" | "28000" | "28P01" => refused(StoreRefusal::NotPermitted),
            "3D000" | "3F000" | "42883" | "42P01" | "42703" | "26000" | "GS001" => {
                refused(StoreRefusal::Unusable)
            }
            "XX001" | "XX002" => InfraError::Corruption { operation, message: self.message() },
            code if code.starts_with("54") => refused(StoreRefusal::TooLarge),
            _ => transient(),
        }
    }

    /// Returns the cause and the remedy.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::NotConnected { why } => {
                format!("no connection ({why}); check that PostgreSQL runs there and is reachable")
            }
            Self::Lost => "the connection to PostgreSQL was lost".to_owned(),
            Self::Timeout { millis } => {
                format!("PostgreSQL did not answer within {millis} ms; check its load and locks")
            }
            Self::Server { code, text_len, .. } => {
                let remedy = remedy(code);
                format!("PostgreSQL error {code} with {text_len} bytes of text{remedy}")
            }
        }
    }
}

/// Returns whether an error with this code arises before the commit.
fn is_before_commit(code: &str) -> bool {
    const CODES: [&str; 13] = [
        "40001", "40P01", "55P03", "57014", "53100", "53200", "53400", "25006", "25001", "3F000",
        "26000", "XX001", "XX002",
    ];
    // Classes whose every code is about the statement itself.
    const CLASSES: [&str; 6] = ["0A", "22", "23", "42", "54", "GS"];
    CODES.contains(&code) || code.get(..2).is_some_and(|class| CLASSES.contains(&class))
}

/// Returns what to do about a code, behind a semicolon.
fn remedy(code: &str) -> &'static str {
    match code {
        "28000" | "28P01" => "; check the user and its password",
        "3D000" => "; create the database",
        "42501" => "; grant the role usage of the schema and execution of its functions",
        "3F000" | "42883" | "42P01" | "42703" => "; the schema has no gossip store of this version",
        "25006" => "; the server is read-only, connect to the primary",
        "53100" => "; the disk of the server is full",
        "53300" => "; raise max_connections or use a pooler",
        "55P03" | "57014" => "; another transaction holds a lock for too long",
        "26000" => "; the pooler keeps no prepared statements, add pooler=transaction to the URL",
        "GS001" => "; the function was called in a transaction of another isolation level",
        _ => "; see the server's log",
    }
}
