//! Reads at one revision, however many and however large.
//!
//! Reads that fit in one transaction, including nested ones, are one request. If there are more, or
//! a response exceeds the client's limit, several requests are made: the first response has a
//! revision, and the others read at the same one. etcd keeps old revisions, so they still see one
//! snapshot. If a compaction removes it in between, the read fails with a retryable error.

use crate::error::{EtcdCause, EtcdError, SizeLimit};
use crate::kv::EtcdKv;
use crate::proto::{RangeRequest, RangeResponse, ResponseHeader, TxnRequest};
use crate::sender::Sender;
use crate::wire::{self, Question};

/// Levels of nested transactions in one request. Protobuf decoders stop at a hundred levels of
/// messages, and each of these is two.
const NESTED_MAX: usize = 32;

const _: () = assert!(2 * NESTED_MAX < 100);

/// Returns the answers to `questions`, in order and of one revision. The list is shorter if the
/// server returned an answer of the wrong kind, which the caller must check. Fails if a request
/// fails after its retries, or if a compaction removes the revision between two requests.
pub(crate) async fn answers<K: EtcdKv>(
    sender: &Sender<K>,
    questions: Vec<Question>,
) -> Result<Vec<RangeResponse>, EtcdError> {
    let mut answers: Vec<RangeResponse> = Vec::with_capacity(questions.len());
    let mut rest = questions.into_iter();
    let mut revision = 0;
    while rest.len() > 0 {
        let fitting = fitting(rest.as_slice(), sender.budget.ops);
        let mut chunk: Vec<Question> = rest.by_ref().take(fitting.max(1)).collect();
        let chunk_len = chunk.len();
        chunk.iter_mut().for_each(|question| question.pin(revision));
        // A compare in etcd sees only the latest revision, so "the first range that is not empty"
        // at an older revision is read range by range.
        let has_passed = revision != 0 && chunk.iter().any(|it| matches!(it, Question::FirstOf(_)));
        let received =
            if has_passed || fitting == 0 { None } else { Some(ask(sender, &chunk).await) };
        let received = match received {
            Some(Err(error)) if !is_answer_too_large(&error) => return Err(error),
            Some(Ok(received)) => received,
            Some(Err(_)) | None => one_by_one(sender, chunk).await?,
        };
        let is_whole = received.len() == chunk_len;
        answers.extend(received);
        if !is_whole {
            // Answers are matched to questions by their order, so those after a gap are of no use.
            break;
        }
        revision = pinned(revision, answers.first());
    }
    Ok(answers)
}

/// Returns how many of `questions` fit in one transaction of a server that allows `ops`: a nested
/// one may use what the outer one leaves. Zero if the first alone is nested too deeply.
fn fitting(questions: &[Question], ops: usize) -> usize {
    let mut deepest = 0;
    let fits = |(index, question): &(usize, &Question)| {
        deepest = deepest.max(question.depth());
        deepest <= NESTED_MAX && index + 1 + deepest <= ops
    };
    questions.iter().enumerate().take_while(fits).count()
}

/// Returns the revision of the first answer, unless one is set already.
fn pinned(revision: i64, first: Option<&RangeResponse>) -> i64 {
    let header = first.and_then(|answer| answer.header.as_ref());
    if revision == 0 { header.map_or(0, |header| header.revision) } else { revision }
}

/// Sends the reads in one request and returns their answers. Retries transient errors: a read has
/// no effect, so it may always be repeated.
async fn ask<K: EtcdKv>(
    sender: &Sender<K>,
    questions: &[Question],
) -> Result<Vec<RangeResponse>, EtcdError> {
    let mut retry = 0;
    loop {
        match ask_once(sender, questions).await {
            Err(error) if error.is_transient() && retry < sender.retries => {
                sender.back_off(retry).await;
                retry += 1;
            }
            answer => return answer,
        }
    }
}

/// Sends the reads in one request, once. The list of answers ends before one of the wrong kind.
async fn ask_once<K: EtcdKv>(
    sender: &Sender<K>,
    questions: &[Question],
) -> Result<Vec<RangeResponse>, EtcdError> {
    let ops = match questions {
        [] => return Ok(Vec::new()),
        [Question::One(request)] => return Ok(vec![sender.kv.range(request.clone()).await?]),
        questions => questions.iter().filter_map(|question| question.clone().into_op()),
    };
    let request = TxnRequest { success: ops.collect(), ..TxnRequest::default() };
    let answer = sender.kv.txn(request).await?;
    let of_instant = |range| with_header(range, answer.header.as_ref());
    // An answer of another kind ends the list, and the caller notices that it is short.
    let ranges = answer.responses.into_iter().map_while(|it| wire::question_answer(Some(it)));
    Ok(ranges.map(of_instant).collect())
}

/// Sets the header of the whole response, whose revision applies to nested answers as well.
fn with_header(range: RangeResponse, header: Option<&ResponseHeader>) -> RangeResponse {
    RangeResponse { header: header.cloned(), ..range }
}

/// Answers each question with requests of its own, because together they do not fit in one request
/// or one response. All are read at the revision of the first.
async fn one_by_one<K: EtcdKv>(
    sender: &Sender<K>,
    questions: Vec<Question>,
) -> Result<Vec<RangeResponse>, EtcdError> {
    let mut answers: Vec<RangeResponse> = Vec::with_capacity(questions.len());
    for question in questions {
        let ranges = match question {
            Question::One(range) => vec![range],
            Question::FirstOf(ranges) => ranges,
        };
        let mut answer = RangeResponse::default();
        for range in ranges {
            // At the revision of the first answer, or they would not be one snapshot.
            let revision = pinned(range.revision, answers.first().or(Some(&answer)));
            answer = in_parts(sender, RangeRequest { revision, ..range }).await?;
            if !answer.kvs.is_empty() {
                break;
            }
        }
        answers.push(answer);
    }
    Ok(answers)
}

/// Reads a range and returns it as one response, in smaller and smaller parts if a response is too
/// large. Every part has a key or is the last, whatever `more` says, so there are at most as many
/// parts as keys. A single entry that is too large is the error.
async fn in_parts<K: EtcdKv>(
    sender: &Sender<K>,
    request: RangeRequest,
) -> Result<RangeResponse, EtcdError> {
    let mut whole = RangeResponse::default();
    // Only a read of one key and a count have no limit (zero): neither can be split, and `part > 1`
    // never holds for them.
    let (mut rest, mut part) = (request.clone(), request.limit);
    loop {
        let len = i64::try_from(whole.kvs.len()).unwrap_or(i64::MAX);
        rest.limit = part.min(request.limit - len);
        let answer = match ask(sender, &[Question::One(rest.clone())]).await {
            Err(error) if is_answer_too_large(&error) && part > 1 => {
                part /= 2;
                continue;
            }
            answer => answer?.into_iter().next().unwrap_or_default(),
        };
        rest.revision = pinned(rest.revision, Some(&answer));
        if let Some(last) = answer.kvs.last() {
            // The immediate successor of a key is the key with a zero byte appended.
            rest.key = [last.key.as_slice(), &[0]].concat();
        }
        let is_over = !answer.more || answer.kvs.is_empty();
        whole.header = whole.header.or(answer.header);
        whole.count = whole.count.max(answer.count);
        whole.kvs.extend(answer.kvs);
        if is_over || i64::try_from(whole.kvs.len()).is_ok_and(|len| len >= request.limit) {
            return Ok(whole);
        }
    }
}

fn is_answer_too_large(error: &EtcdError) -> bool {
    error.cause == EtcdCause::TooLarge(SizeLimit::Answer)
}
