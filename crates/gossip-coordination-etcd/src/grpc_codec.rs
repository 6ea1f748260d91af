//! Carries messages over gRPC: requests that are encoded once, answers of a known type.
//!
//! A request is encoded before the first attempt, so that another attempt at another member costs
//! a reference and not a copy.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Sends bytes as they are and decodes `A`.
pub(crate) struct AnswerCodec<A>(PhantomData<A>);

impl<A> AnswerCodec<A> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<A: Message + Default + 'static> Codec for AnswerCodec<A> {
    type Encode = Bytes;
    type Decode = A;
    type Encoder = AsIs;
    type Decoder = AnswerDecoder<A>;

    fn encoder(&mut self) -> AsIs {
        AsIs
    }

    fn decoder(&mut self) -> AnswerDecoder<A> {
        AnswerDecoder(PhantomData)
    }
}

/// The request is encoded already.
pub(crate) struct AsIs;

impl Encoder for AsIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
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
}
