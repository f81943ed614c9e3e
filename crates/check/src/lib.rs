//! Histories of operations, and whether a correct store could have answered them so.
