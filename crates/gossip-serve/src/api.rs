//! The handlers of `/api/v1`. The OpenAPI document is made from them.
#![expect(unused_qualifications, reason = "in the code that utoipa makes")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gossip::identity::RunId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi};

use crate::access::Role;
use crate::app::App;
use crate::desk::{FailureCursor, PAGE_MAX, id};
use crate::events::EventCursor;
use crate::limits::Guess;
use crate::problem::{Code, Problem};
use crate::security::{self, BODY_MAX, Peer};
use crate::state::State as Known;
use crate::wire::*;
use crate::{assets, metrics, stream};

/// Runs per page.
const RUNS_MAX: usize = 500;
const RUNS_DEFAULT: usize = 200;

/// Events per page.
const EVENTS_MAX: usize = 500;
const EVENTS_DEFAULT: usize = 100;

/// Runs that one stream shows in full.
const STREAM_RUNS_MAX: usize = 16;

/// Longest idempotency key.
const KEY_MAX: usize = 128;

type Answer = Result<Response, Problem>;

/// The document of the API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "gossip",
        description = "Runs, their progress, workers and failures. Send `Authorization: Bearer TOKEN`."
    ),
    paths(
        session,
        sign_in,
        runs,
        run,
        history,
        failures,
        events,
        certificate,
        verification,
        workers,
        store,
        stream_updates,
        actions,
        openapi
    ),
    components(schemas(Problem, Code, Lane, Mark, Column, ShardCounts))
)]
struct Document;

/// Returns the routes of the server.
pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/api/v1/session", get(session).post(sign_in))
        .route("/api/v1/runs", get(runs))
        .route("/api/v1/runs/{run}", get(run))
        .route("/api/v1/runs/{run}/history", get(history))
        .route("/api/v1/runs/{run}/failures", get(failures))
        .route("/api/v1/runs/{run}/events", get(events))
        .route("/api/v1/runs/{run}/certificate", get(certificate))
        .route("/api/v1/runs/{run}/verification", get(verification))
        .route("/api/v1/workers", get(workers))
        .route("/api/v1/store", get(store))
        .route("/api/v1/stream", get(stream_updates))
        .route("/api/v1/actions", post(actions))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/metrics", get(scrape))
        .route("/", get(assets::page))
        .route("/runs", get(assets::page))
        .route("/runs/{run}", get(assets::page))
        .route("/workers", get(assets::page))
        .route("/store", get(assets::page))
        .route("/assets/{file}", get(asset))
        .fallback(async || Problem::new(Code::NotFound))
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed))
        .layer(DefaultBodyLimit::max(BODY_MAX as usize))
        // Added last and so the outermost: a request that is refused reaches no handler.
        .layer(from_fn_with_state(Arc::clone(app), security::guard))
        .with_state(Arc::clone(app))
}

async fn asset(Path(file): Path<String>) -> Answer {
    assets::named(&file).ok_or_else(|| Code::NotFound.into())
}

async fn scrape(State(app): State<Arc<App>>) -> Answer {
    let text = metrics::encode(&app).map_err(|error| {
        Problem::new(Code::Busy).detail(format!("metrics cannot be encoded: {error}"))
    })?;
    let mut response = text.into_response();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// Returns who is asking, and whom.
#[utoipa::path(get, path = "/api/v1/session", responses((status = 200, body = Session), (status = 401, body = Problem)))]
async fn session(State(app): State<Arc<App>>, Extension(role): Extension<Role>) -> Answer {
    json(&described(&app, role))
}

/// Trades a token for a cookie.
#[utoipa::path(post, path = "/api/v1/session", request_body = SignIn, responses((status = 200, body = Session), (status = 401, body = Problem)))]
async fn sign_in(State(app): State<Arc<App>>, request: Request) -> Answer {
    let peer = request.extensions().get::<Peer>().copied();
    let is_secure =
        request.headers().get("x-forwarded-proto").is_some_and(|protocol| protocol == "https");
    let body: SignIn = read_json(request).await?;
    let peer = peer.map_or_else(|| IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
    // In a closure, because an address with too many wrong tokens must not even learn that one is
    // right.
    let look = || Some((app.tokens.role(&body.token)?, app.tokens.cookie(&body.token, is_secure)?));
    let (role, cookie) = match app.limits.guess(peer, body.token.as_bytes(), look) {
        Guess::Right(found) => found,
        Guess::Wrong => {
            let why = "the token is not one of this server";
            return Err(Problem::new(Code::Unauthorized).detail(why));
        }
        Guess::TooMany => return Err(security::too_many_guesses()),
    };
    let mut response = json(&described(&app, role))?;
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| Code::Unauthorized)?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

fn described(app: &App, role: Role) -> Session {
    let options = &app.shared.options;
    Session {
        tenant: options.tenant_name.clone(),
        role: match role {
            Role::Read => "read",
            Role::Operate => "operate",
        },
        may_change: role == Role::Operate && !options.read_only,
        version: options.version.clone(),
    }
}

/// Which runs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RunsQuery {
    /// Statuses, separated by commas.
    status: Option<String>,
    /// Part of the name, id, source or command.
    text: Option<String>,
    /// Where the page begins: `next` of the page before.
    cursor: Option<String>,
    /// Runs per page, at most 500.
    limit: Option<usize>,
}

/// Lists runs, newest first.
#[utoipa::path(get, path = "/api/v1/runs", params(RunsQuery), responses((status = 200, body = RunPage)))]
async fn runs(
    State(app): State<Arc<App>>,
    query: Result<Query<RunsQuery>, QueryRejection>,
) -> Answer {
    let query = parameters(query)?;
    let limit = query.limit.unwrap_or(RUNS_DEFAULT);
    // Refused and not clamped: a client that counts its pages would miss runs.
    if !(1..=RUNS_MAX).contains(&limit) {
        return Err(invalid("limit: 1 to 500"));
    }
    let after = match query.cursor.as_deref() {
        Some(cursor) => Some(run_cursor(cursor).ok_or_else(|| invalid("cursor: not one of ours"))?),
        None => None,
    };
    let state = app.shared.read();
    let is_wanted = |summary: &RunSummary| {
        let statuses = query.status.as_deref().filter(|statuses| !statuses.is_empty());
        let has_status =
            statuses.is_none_or(|them| them.split(',').any(|status| status == summary.status));
        let text = query.text.as_deref().unwrap_or_default();
        let texts = [Some(&summary.run), summary.name.as_ref(), summary.source.as_ref()];
        let texts = texts.into_iter().chain([summary.command.as_ref()]).flatten();
        has_status && (text.is_empty() || texts.into_iter().any(|it| it.contains(text)))
    };
    let mut found: Vec<(u64, RunId)> = state
        .runs
        .iter()
        .filter(|(_, run)| is_wanted(&run.summary))
        // The newest first, and the id decides between equal times: the cursor is such a pair.
        .map(|(id, run)| (u64::MAX - run.summary.created_at, *id))
        .filter(|place| after.is_none_or(|after| *place > after))
        .collect();
    found.sort_unstable();
    let next = found.get(limit).and_then(|_| found.get(limit - 1));
    let next = next.map(|(age, run)| format!("{age:016x}{:016x}", run.as_raw()));
    let mut page = RunPage { runs: Vec::new(), next, is_complete: state.is_listed };
    for (_, run) in found.iter().take(limit) {
        page.runs.extend(summary_of(&app, &state, *run));
    }
    // Before the text is made: the sampler waits for the lock.
    drop(state);
    json(&page)
}

fn run_cursor(text: &str) -> Option<(u64, RunId)> {
    let (age, run) = text.split_at_checked(16)?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    Some((hex(age)?, RunId::from_raw(hex(run)?)))
}

/// Returns a run as it is listed; of one whose shards are being read, how far.
fn summary_of(app: &App, state: &Known, run: RunId) -> Option<RunSummary> {
    let mut summary = state.runs.get(&run)?.summary.clone();
    summary.rows_read = rows_read(app, state, run);
    Some(summary)
}

fn rows_read(app: &App, state: &Known, run: RunId) -> Option<u64> {
    let (reading, before) = state.reading?;
    (reading == run).then(|| app.shared.pace.counted().rows.saturating_sub(before))
}

/// Returns a run with its map. Asking for a run moves it to the front of those that are read.
#[utoipa::path(get, path = "/api/v1/runs/{run}", params(("run" = String, Path)), responses((status = 200, body = RunView), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn run(State(app): State<Arc<App>>, Path(run): Path<String>) -> Answer {
    let (run, view) = look_up(&app, &run, |_, run| run.view.clone())?;
    match view {
        Some(view) => Ok(json_text(view.to_string())),
        None => Err(not_read(&app, run)),
    }
}

/// Returns why a run has no view: it waits for its turn, or its record is damaged.
fn not_read(app: &App, run: RunId) -> Problem {
    let state = app.shared.read();
    if state.runs.get(&run).is_some_and(|found| found.summary.status == UNREADABLE) {
        let remove = format!("gossip run rm {:016x} --damaged", run.as_raw());
        let detail = format!("to delete the run: {remove}");
        return Problem::new(Code::RunUnreadable).detail(detail);
    }
    let read = rows_read(app, &state, run);
    drop(state);
    let read = read.map_or_else(|| "waiting".to_owned(), |rows| format!("{rows} values read"));
    Problem::new(Code::NotReadYet).detail(read)
}

/// Returns the run of a path, and what `get` takes from its state.
fn look_up<T>(
    app: &App,
    run: &str,
    get: impl FnOnce(&Known, &crate::state::RunState) -> T,
) -> Result<(RunId, T), Problem> {
    let run = RunId::from_raw(id("run", Some(run))?);
    let state = app.shared.read();
    let found = state.runs.get(&run).map(|found| get(&state, found));
    let is_listed = state.is_listed;
    drop(state);
    match found {
        Some(found) => {
            // A client that asks for a run is about to look at it, so it is read before others.
            app.shared.want(run);
            Ok((run, found))
        }
        // Only after the first listing: before it, a run that is unknown may exist.
        None if is_listed => Err(Code::RunNotFound.into()),
        None => Err(Problem::new(Code::NotReadYet).detail("the list of runs is being read")),
    }
}

/// Returns the history of a run since the server follows it.
#[utoipa::path(get, path = "/api/v1/runs/{run}/history", params(("run" = String, Path)), responses((status = 200, body = History), (status = 404, body = Problem)))]
async fn history(State(app): State<Arc<App>>, Path(run): Path<String>) -> Answer {
    let (run, (columns, interval)) = look_up(&app, &run, |_, run| run.history.clone())?;
    // The columns were serialized when they were made.
    let mut text = format!(
        "{{\"run\":\"{:016x}\",\"buckets\":{},\"interval_ms\":{},\"columns\":[",
        run.as_raw(),
        crate::buckets::BUCKETS,
        interval.as_millis()
    );
    for (index, column) in columns.iter().enumerate() {
        text.push_str(if index > 0 { "," } else { "" });
        text.push_str(column);
    }
    text.push_str("]}");
    Ok(json_text(text))
}

/// Which failures.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FailuresQuery {
    /// Where the page begins: `next` of the page before.
    cursor: Option<String>,
    /// Failures per page, at most 100.
    limit: Option<usize>,
}

/// Lists the failed and unread items of a run.
#[utoipa::path(get, path = "/api/v1/runs/{run}/failures", params(("run" = String, Path), FailuresQuery), responses((status = 200, body = FailurePage), (status = 404, body = Problem)))]
async fn failures(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    query: Result<Query<FailuresQuery>, QueryRejection>,
) -> Answer {
    let query = parameters(query)?;
    let limit = query.limit.unwrap_or(PAGE_MAX / 2);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(invalid("limit: 1 to 100"));
    }
    let cursor = match query.cursor.as_deref() {
        Some(cursor) => FailureCursor::parse(cursor),
        None => Some(FailureCursor::Parked(None)),
    };
    let cursor = cursor.ok_or_else(|| invalid("cursor: not one of ours"))?;
    let (run, is_read) = look_up(&app, &run, |_, run| run.view.is_some())?;
    if !is_read {
        return Err(not_read(&app, run));
    }
    json(&app.desk.ask(move |desk| desk.failures(run, cursor, limit)).await?)
}

/// Which events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Where the page begins: `next` of the page before.
    cursor: Option<String>,
    /// Events per page, at most 500.
    limit: Option<usize>,
}

/// Lists the stored events of a run, the newest first.
#[utoipa::path(get, path = "/api/v1/runs/{run}/events", params(("run" = String, Path), EventsQuery), responses((status = 200, body = EventPage), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn events(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Answer {
    let query = parameters(query)?;
    let limit = query.limit.unwrap_or(EVENTS_DEFAULT);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(invalid("limit: 1 to 500"));
    }
    let cursor = query.cursor.as_deref();
    let cursor = cursor
        .map(|cursor| EventCursor::parse(cursor).ok_or_else(|| invalid("cursor: not one of ours")));
    let (run, ()) = look_up(&app, &run, |_, _| ())?;
    let cursor = cursor.transpose()?;
    // From memory if possible, because the desk answers one request at a time.
    let events = match app.shared.events.get(run, Instant::now()) {
        Some(events) => events,
        None => app.desk.ask(move |desk| desk.events(run)).await?,
    };
    let state = app.shared.read();
    let page = events.page(cursor, limit, &state.workers.workers);
    drop(state);
    json(&page)
}

/// Returns the certificate of a finished run.
#[utoipa::path(get, path = "/api/v1/runs/{run}/certificate", params(("run" = String, Path)), responses((status = 200, body = String, content_type = "application/x-ndjson"), (status = 409, body = Problem)))]
async fn certificate(State(app): State<Arc<App>>, Path(run): Path<String>) -> Answer {
    let (run, ()) = look_up(&app, &run, |_, _| ())?;
    let made = app.desk.ask(move |desk| desk.certificate(run)).await?;
    let mut response = made.text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    let name = format!("attachment; filename=\"{:016x}.certificate\"", run.as_raw());
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// Writes and verifies the certificate of a finished run.
#[utoipa::path(get, path = "/api/v1/runs/{run}/verification", params(("run" = String, Path)), responses((status = 200, body = Verification), (status = 409, body = Problem)))]
async fn verification(State(app): State<Arc<App>>, Path(run): Path<String>) -> Answer {
    let (run, ()) = look_up(&app, &run, |_, _| ())?;
    let made = app.desk.ask(move |desk| desk.certificate(run)).await?;
    let command = format!("gossip run verify {:016x}", run.as_raw());
    json(&Verification { summary: made.summary, is_complete: made.is_complete, command })
}

/// Lists the workers of the tenant.
#[utoipa::path(get, path = "/api/v1/workers", responses((status = 200, body = Workers)))]
async fn workers(State(app): State<Arc<App>>) -> Answer {
    let workers = app.shared.read().workers.clone();
    json(&workers)
}

/// Returns the state of the store.
#[utoipa::path(get, path = "/api/v1/store", responses((status = 200, body = StoreHealth)))]
async fn store(State(app): State<Arc<App>>) -> Answer {
    let store = app.shared.read().store.clone();
    json(&store)
}

/// Which updates.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StreamQuery {
    /// The runs whose maps are sent with each update, separated by commas; at most 16.
    run: Option<String>,
    /// As the header `Last-Event-ID`, which a new `EventSource` does not send.
    last_event_id: Option<String>,
}

/// Streams updates as server-sent events: runs, run, gone, workers, store, and resync if updates
/// were missed.
#[utoipa::path(get, path = "/api/v1/stream", params(StreamQuery), responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn stream_updates(
    State(app): State<Arc<App>>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let query = parameters(query)?;
    let runs = query.run.as_deref().filter(|runs| !runs.is_empty());
    let runs = runs.into_iter().flat_map(|runs| runs.split(','));
    let runs = runs.map(|run| Ok(RunId::from_raw(id("run", Some(run))?)));
    // One more than allowed shows that there are too many, however long the list is.
    let runs = runs.take(STREAM_RUNS_MAX + 1).collect::<Result<Vec<_>, Problem>>()?;
    if runs.len() > STREAM_RUNS_MAX {
        return Err(invalid("run: at most 16"));
    }
    stream::open(&app, runs, query.last_event_id.as_deref(), &headers)
}

/// Changes a run, a shard or a worker. The same `Idempotency-Key` executes a change once.
#[utoipa::path(post, path = "/api/v1/actions", params(("Idempotency-Key" = Option<String>, Header)), request_body = Action, responses((status = 200, body = Done), (status = 403, body = Problem), (status = 409, body = Problem)))]
async fn actions(State(app): State<Arc<App>>, request: Request) -> Answer {
    let key = match request.headers().get("idempotency-key").map(HeaderValue::to_str) {
        Some(Ok(key)) if (1..=KEY_MAX).contains(&key.len()) => Some(key.to_owned()),
        Some(_) => return Err(invalid("Idempotency-Key: 1 to 128 ASCII letters")),
        None => None,
    };
    let action: Action = read_json(request).await?;
    json(&app.desk.ask(move |desk| desk.act(&action, key.as_deref())).await?)
}

/// Returns this document.
#[utoipa::path(get, path = "/api/v1/openapi.json", responses((status = 200, body = String, content_type = "application/json")))]
async fn openapi() -> Answer {
    json(&Document::openapi())
}

/// Reads the body of a change.
async fn read_json<T: serde::de::DeserializeOwned>(request: Request) -> Result<T, Problem> {
    let body: Bytes = axum::body::to_bytes(request.into_body(), BODY_MAX as usize)
        .await
        .map_err(|_| Problem::new(Code::BodyTooLarge))?;
    // The text of the error names places, not values.
    serde_json::from_slice(&body).map_err(|error| {
        let detail = format!("line {}, column {}", error.line(), error.column());
        Problem::new(Code::InvalidJson).detail(detail)
    })
}

fn parameters<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(query)| query).map_err(|error| invalid(&error.body_text()))
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Code::InvalidParameter).detail(detail)
}

fn json<T: Serialize>(value: &T) -> Answer {
    let text = serde_json::to_string(value)
        .map_err(|error| Problem::new(Code::Busy).detail(error.to_string()))?;
    Ok(json_text(text))
}

fn json_text(text: String) -> Response {
    let mut response = text.into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Returns the paths of the document.
#[cfg(test)]
pub(crate) fn documented() -> Vec<String> {
    Document::openapi().paths.paths.keys().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_openapi_3_1_and_has_every_route() {
        let text = serde_json::to_value(Document::openapi()).unwrap();
        assert!(text["openapi"].as_str().unwrap().starts_with("3.1"), "{}", text["openapi"]);
        let source = include_str!("api.rs");
        let routes = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let routes: Vec<_> = routes.filter(|route| route.starts_with("/api/")).collect();
        assert!(routes.len() >= 12);
        for route in routes {
            assert!(documented().iter().any(|path| path == route), "{route}");
        }
    }
}
