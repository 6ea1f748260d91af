//! Carries messages over gRPC: requests that are encoded once, answers of a known type.
//!
//! A request is encoded before the first attempt, so that another attempt at another member costs
//! a reference and not a copy.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{BufMut, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Bytes in front of every message: whether it is compressed, and its length.
const FRAME_LEN: usize = 5;

/// Room for an answer to begin with: that to a commit has about a hundred bytes, and a longer one
/// makes more room. The usual eight kibibytes cost more to allocate than the answer to decode.
const ANSWER_ROOM: usize = 512;

/// Bytes after which a stream is sent on before more is encoded. Ours hold one message.
const YIELD_THRESHOLD: usize = 32 << 10;

/// Sends bytes as they are and decodes `A`.
pub(crate) struct AnswerCodec<A> {
    request_len: usize,
    answer: PhantomData<A>,
}

impl<A> AnswerCodec<A> {
    /// Returns the codec of one request of `request_len` bytes.
    pub(crate) fn new(request_len: usize) -> Self {
        Self { request_len, answer: PhantomData }
    }
}

impl<A: Message + Default + 'static> Codec for AnswerCodec<A> {
    type Encode = Bytes;
    type Decode = A;
    type Encoder = AsIs;
    type Decoder = AnswerDecoder<A>;

    fn encoder(&mut self) -> AsIs {
        AsIs { len: self.request_len }
    }

    fn decoder(&mut self) -> AnswerDecoder<A> {
        AnswerDecoder(PhantomData)
    }
}

/// The request is encoded already.
pub(crate) struct AsIs {
    /// Bytes of the request.
    len: usize,
}

impl Encoder for AsIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        // As long as the message with its frame, so that the buffer never grows.
        BufferSettings::new(FRAME_LEN + self.len, YIELD_THRESHOLD)
    }
}

/// Decodes one answer.
pub(crate) struct AnswerDecoder<A>(PhantomData<A>);

impl<A: Message + Default> Decoder for AnswerDecoder<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        // The text of the error names fields, not their content.
        A::decode(buffer).map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(ANSWER_ROOM, YIELD_THRESHOLD)
    }
}
