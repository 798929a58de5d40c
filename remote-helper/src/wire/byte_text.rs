//! Bytes inside JSON: readable where they are UTF-8, exact where they are not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Arbitrary bytes that travel in a control payload: a path, an argument, the value of a variable.
///
/// In JSON it is a string when the bytes are UTF-8, else `{"b64":"…"}`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteText(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    b64: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Text(String),
    Encoded(Encoded),
}

impl ByteText {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text for people, with each byte that is not UTF-8 shown as `\xNN`.
    pub fn escaped(&self) -> String {
        self.0
            .utf8_chunks()
            .flat_map(|chunk| {
                let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02X}"));
                std::iter::once(chunk.valid().to_owned()).chain(invalid)
            })
            .collect()
    }
}

impl std::fmt::Debug for ByteText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.escaped())
    }
}

impl From<&str> for ByteText {
    fn from(text: &str) -> Self {
        ByteText(text.as_bytes().to_vec())
    }
}

impl From<String> for ByteText {
    fn from(text: String) -> Self {
        ByteText(text.into_bytes())
    }
}

impl From<Vec<u8>> for ByteText {
    fn from(bytes: Vec<u8>) -> Self {
        ByteText(bytes)
    }
}

impl From<&[u8]> for ByteText {
    fn from(bytes: &[u8]) -> Self {
        ByteText(bytes.to_vec())
    }
}

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_not_text) => Encoded { b64: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Either::deserialize(deserializer)? {
            Either::Text(text) => Ok(ByteText(text.into_bytes())),
            Either::Encoded(encoded) => STANDARD.decode(&encoded.b64).map(ByteText).map_err(D::Error::custom),
        }
    }
}
