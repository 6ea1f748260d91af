//! Errors of the API: `application/problem+json` with a stable code.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong, for programs. The codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    WrongHost,
    TooManyRequests,
    Unauthorized,
    Forbidden,
    ReadOnly,
    CrossSite,
    UnsupportedMediaType,
    BodyTooLarge,
    Timeout,
    InvalidJson,
    InvalidParameter,
    NotFound,
    MethodNotAllowed,
    RunNotFound,
    ShardNotFound,
    NotReadYet,
    RunUnreadable,
    RunOver,
    NotParked,
    NotLeased,
    RequestPending,
    IdempotencyConflict,
    Refused,
    NoCertificate,
    StoreUnreachable,
    Busy,
}

impl Code {
    const fn status(self) -> StatusCode {
        match self {
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::ReadOnly | Self::CrossSite => StatusCode::FORBIDDEN,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::InvalidJson | Self::InvalidParameter => StatusCode::BAD_REQUEST,
            Self::NotFound | Self::RunNotFound | Self::ShardNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotReadYet
            | Self::RunUnreadable
            | Self::RunOver
            | Self::NotParked
            | Self::NotLeased
            | Self::RequestPending
            | Self::IdempotencyConflict
            | Self::Refused
            | Self::NoCertificate => StatusCode::CONFLICT,
            Self::StoreUnreachable | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::WrongHost => "The Host header does not name this server",
            Self::TooManyRequests => "Too many requests",
            Self::Unauthorized => "A token is needed",
            Self::Forbidden => "This token may not change anything",
            Self::ReadOnly => "This server is read-only",
            Self::CrossSite => "The request comes from another site",
            Self::UnsupportedMediaType => "The body is not application/json",
            Self::BodyTooLarge => "The body is too large",
            Self::Timeout => "The request took too long",
            Self::InvalidJson => "The body is not the expected JSON",
            Self::InvalidParameter => "A parameter is not understood",
            Self::NotFound => "There is nothing here",
            Self::MethodNotAllowed => "The method is not allowed here",
            Self::RunNotFound => "No such run",
            Self::ShardNotFound => "No such shard",
            Self::NotReadYet => "The run is being read",
            Self::RunUnreadable => "The record of the run is damaged",
            Self::RunOver => "The run is over",
            Self::NotParked => "The shard is not parked",
            Self::NotLeased => "No worker holds the shard",
            Self::RequestPending => "Another request to the lease holder is pending",
            Self::IdempotencyConflict => "The idempotency key was used for another change",
            Self::Refused => "The change was refused",
            Self::NoCertificate => "There is no certificate",
            Self::StoreUnreachable => "The store cannot be reached",
            Self::Busy => "The server is busy",
        }
    }
}

/// An error as it is sent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    pub(crate) code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Problem {
    pub(crate) fn new(code: Code) -> Self {
        let word = serde_json::to_value(code).ok();
        let word = word.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
        let kind = format!("urn:gossip:problem:{word}");
        Self { kind, title: code.title(), status: code.status().as_u16(), code, detail: None }
    }

    pub(crate) fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = serde_json::to_vec(&self).expect("words and numbers are JSON");
        let mut response = (status, body).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        // These pass, and a client that retries at once would prolong them.
        if matches!(self.code, Code::Busy | Code::StoreUnreachable | Code::TooManyRequests) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        if self.code == Code::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
