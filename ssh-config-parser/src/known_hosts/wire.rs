//! Checks the inner form of a public key: every field there, of legal length, nothing behind.

/// Takes length-prefixed fields off the front of a key.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn string(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (string, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    /// Takes a positive number; RFC 4251 writes a negative one with its first bit set.
    fn positive(&mut self) -> Option<&'a [u8]> {
        let number = self.string()?;
        (number.first()? & 0x80 == 0).then_some(number)
    }

    fn sized(&mut self, length: usize) -> Option<()> {
        (self.string()?.len() == length).then_some(())
    }

    fn point(&mut self, curve: &[u8], coordinate: usize) -> Option<()> {
        if self.string()? != curve {
            return None;
        }
        let point = self.string()?;
        // 0x04 is the uncompressed form, the only one that SSH uses.
        (point.len() == 1 + 2 * coordinate && point.first() == Some(&0x04)).then_some(())
    }
}

/// What is known of a key by its type.
enum Shape {
    Ed25519,
    Ecdsa(&'static [u8], usize),
    Rsa,
    Dsa,
    SkEd25519,
    SkEcdsa,
    /// A certificate: only its type is checked here.
    Certificate,
}

fn shape(key_type: &[u8]) -> Option<Shape> {
    Some(match key_type {
        b"ssh-ed25519" => Shape::Ed25519,
        b"ecdsa-sha2-nistp256" => Shape::Ecdsa(b"nistp256", 32),
        b"ecdsa-sha2-nistp384" => Shape::Ecdsa(b"nistp384", 48),
        b"ecdsa-sha2-nistp521" => Shape::Ecdsa(b"nistp521", 66),
        b"ssh-rsa" => Shape::Rsa,
        b"ssh-dss" => Shape::Dsa,
        b"sk-ssh-ed25519@openssh.com" => Shape::SkEd25519,
        b"sk-ecdsa-sha2-nistp256@openssh.com" => Shape::SkEcdsa,
        b"ssh-ed25519-cert-v01@openssh.com"
        | b"ecdsa-sha2-nistp256-cert-v01@openssh.com"
        | b"ecdsa-sha2-nistp384-cert-v01@openssh.com"
        | b"ecdsa-sha2-nistp521-cert-v01@openssh.com"
        | b"ssh-rsa-cert-v01@openssh.com"
        | b"ssh-dss-cert-v01@openssh.com"
        | b"sk-ssh-ed25519-cert-v01@openssh.com"
        | b"sk-ecdsa-sha2-nistp256-cert-v01@openssh.com" => Shape::Certificate,
        _ => return None,
    })
}

/// Reads the type at the front of a key.
pub(super) fn key_type(blob: &[u8]) -> Option<&[u8]> {
    Fields(blob).string()
}

/// Tells whether keys of this type are understood.
pub(super) fn is_known(key_type: &[u8]) -> bool {
    shape(key_type).is_some()
}

/// Tells whether a key has all fields of its type, and nothing behind them.
pub(super) fn is_whole(blob: &[u8]) -> bool {
    let mut fields = Fields(blob);
    let checked = fields.string().and_then(shape).and_then(|shape| rest_is_whole(shape, &mut fields));
    checked.is_some()
}

fn rest_is_whole(shape: Shape, fields: &mut Fields<'_>) -> Option<()> {
    match shape {
        Shape::Ed25519 => fields.sized(32)?,
        Shape::Ecdsa(curve, coordinate) => fields.point(curve, coordinate)?,
        Shape::Rsa => {
            fields.positive()?;
            fields.positive()?;
        }
        Shape::Dsa => {
            for _ in 0..4 {
                fields.positive()?;
            }
        }
        Shape::SkEd25519 => {
            fields.sized(32)?;
            fields.string()?;
        }
        Shape::SkEcdsa => {
            fields.point(b"nistp256", 32)?;
            fields.string()?;
        }
        Shape::Certificate => return Some(()),
    }
    fields.0.is_empty().then_some(())
}
