//! Planted faults, to show that tests and simulator find them.
//!
//! Without the feature `planted-bugs` no fault can be planted: [`Planted::has`] returns false and the branches behind
//! it are not compiled in.

use std::marker::PhantomData;

/// The fault that is planted, if any; `Fault` lists those that can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planted<Fault> {
    #[cfg(feature = "planted-bugs")]
    fault: Option<Fault>,
    faults: PhantomData<Fault>,
}

impl<Fault> Default for Planted<Fault> {
    fn default() -> Planted<Fault> {
        Planted {
            #[cfg(feature = "planted-bugs")]
            fault: None,
            faults: PhantomData,
        }
    }
}

impl<Fault: Copy + PartialEq> Planted<Fault> {
    /// Plants one fault.
    #[cfg(feature = "planted-bugs")]
    pub fn one(fault: Fault) -> Planted<Fault> {
        Planted { fault: Some(fault), faults: PhantomData }
    }

    /// Whether this fault is planted.
    #[inline]
    pub fn has(self, fault: Fault) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = fault;
            false
        }
    }
}
