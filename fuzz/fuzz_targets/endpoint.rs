//! `properties::endpoint` for any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../remote-helper/tests/corpus/properties.rs"]
#[allow(dead_code, reason = "each target uses one of the three")]
mod properties;

fuzz_target!(|data: &[u8]| properties::endpoint(data));
