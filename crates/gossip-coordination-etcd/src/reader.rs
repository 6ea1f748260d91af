//! Questions of one instant, however many and however large.
//!
//! As many questions as one transaction takes are one request, what is nested in them included.
//! More, or an answer that is larger
//! than the client takes, are asked for in several: the first answer says which revision it is of,
//! and the others are asked for the same one. etcd keeps old revisions, so that is still one
//! instant. If a compaction comes in between, the read is an error that can be tried again.

use crate::error::{EtcdCause, EtcdError, SizeLimit};
use crate::kv::EtcdKv;
use crate::proto::{RangeRequest, RangeResponse, ResponseHeader, TxnRequest};
use crate::sender::Sender;
use crate::wire::{self, Question};

/// Transactions nested in one another that are asked for at once. A decoder of answers follows a
/// hundred messages in one another, and each of these is two.
const NESTED_MAX: usize = 32;

const _: () = assert!(2 * NESTED_MAX < 100);

/// The answers to `questions`, in their order. One that is missing at the end was not understood.
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
        // What is empty is compared as of now, so it is found out step by step for an instant that
        // has passed.
        let has_passed = revision != 0 && chunk.iter().any(|it| matches!(it, Question::FirstOf(_)));
        let told = if has_passed || fitting == 0 { None } else { Some(ask(sender, &chunk).await) };
        let told = match told {
            Some(Err(error)) if !is_answer_too_large(&error) => return Err(error),
            Some(Ok(told)) => told,
            Some(Err(_)) | None => one_by_one(sender, chunk).await?,
        };
        let is_whole = told.len() == chunk_len;
        answers.extend(told);
        if !is_whole {
            // What came next would be taken for the answers that are missing.
            break;
        }
        revision = pinned(revision, answers.first());
    }
    Ok(answers)
}

/// How many of `questions` one transaction takes if a server allows so many `ops`: a nested one has
/// what the one around it has left. None if the first is nested too deep by itself.
fn fitting(questions: &[Question], ops: usize) -> usize {
    let mut deepest = 0;
    let fits = |(index, question): &(usize, &Question)| {
        deepest = deepest.max(question.depth());
        deepest <= NESTED_MAX && index + 1 + deepest <= ops
    };
    questions.iter().enumerate().take_while(fits).count()
}

/// The revision of the first answer, unless one is known already.
fn pinned(revision: i64, first: Option<&RangeResponse>) -> i64 {
    let header = first.and_then(|answer| answer.header.as_ref());
    if revision == 0 { header.map_or(0, |header| header.revision) } else { revision }
}

/// Asks again as often as is allowed: a read does no harm.
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
    // One of another kind ends the list, and what is missing is noticed by whoever asked.
    let ranges = answer.responses.into_iter().map_while(|it| wire::question_answer(Some(it)));
    Ok(ranges.map(of_instant).collect())
}

/// What is nested has the revision of the whole, also where it does not say so.
fn with_header(range: RangeResponse, header: Option<&ResponseHeader>) -> RangeResponse {
    RangeResponse { header: header.cloned(), ..range }
}

/// Asks one by one for what cannot be answered at once.
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

/// A range, in smaller and smaller parts if its answer is too large. Every part brings a key, or it
/// is the last, whatever the server says: so there are at most as many parts as keys.
async fn in_parts<K: EtcdKv>(
    sender: &Sender<K>,
    request: RangeRequest,
) -> Result<RangeResponse, EtcdError> {
    let mut whole = RangeResponse::default();
    let (mut rest, mut part) = (request.clone(), request.limit);
    loop {
        let len = i64::try_from(whole.kvs.len()).unwrap_or(i64::MAX);
        // Without a limit there is one key, which has no parts.
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
            // Nothing lies between a key and the same key with a zero byte behind it.
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
