//! Encodes and decodes integers and byte strings, little-endian, bounds-checked.
//!
//! Commands, replies and peer messages share this codec. A [`Reader`] never panics and never allocates: input from a
//! peer or a file may end anywhere.

/// The bytes ended early or held a value that the format does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct Malformed(pub &'static str);

/// Reads values off the front of a byte slice. Every read returns [`Malformed`] when the bytes end early.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    is_checked: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, is_checked: false }
    }

    /// Reads bytes that were read before without an error: what is held within what is read is not checked once more. Unchecked bytes
    /// give no panic here either, but may give values that are not what they say.
    #[inline]
    pub fn of_checked(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, is_checked: true }
    }

    /// Whether the bytes were read before.
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes exactly `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed("ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed("ends early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Takes a 16-bit integer.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Takes a 32-bit integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes a 64-bit integer.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes a signed 64-bit integer.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Takes a 64-bit floating-point number, which may be infinite. NaN is refused: no command has it, and it equals
    /// nothing.
    #[inline]
    pub fn f64(&mut self) -> Result<f64, Malformed> {
        let number = f64::from_bits(self.u64()?);
        if number.is_nan() { Err(Malformed("not a number")) } else { Ok(number) }
    }

    /// Takes a byte that must be 0 or 1.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    /// Takes a byte string: a 32-bit length, then the bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }
}

/// Appends values to a byte buffer.
pub trait Writer {
    /// Appends one byte.
    fn put_u8(&mut self, value: u8);
    /// Appends a 16-bit integer.
    fn put_u16(&mut self, value: u16);
    /// Appends a 32-bit integer.
    fn put_u32(&mut self, value: u32);
    /// Appends a 64-bit integer.
    fn put_u64(&mut self, value: u64);
    /// Appends a signed 64-bit integer.
    fn put_i64(&mut self, value: i64);
    /// Appends a 64-bit floating-point number, which must not be NaN.
    fn put_f64(&mut self, value: f64);
    /// Appends 0 or 1.
    fn put_bool(&mut self, value: bool);
    /// Appends a 32-bit length and the bytes. Strings longer than 4 GiB cannot occur: every input is limited.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Writer for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    #[inline]
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn put_f64(&mut self, value: f64) {
        debug_assert!(!value.is_nan(), "NaN would be refused when it is read");
        self.put_u64(value.to_bits());
    }
    #[inline]
    fn put_bool(&mut self, value: bool) {
        self.push(value as u8);
    }
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= u32::MAX as usize);
        self.put_u32(bytes.len() as u32);
        self.extend_from_slice(bytes);
    }
}
