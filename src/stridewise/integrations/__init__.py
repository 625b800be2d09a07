"""Where stridewise meets other programs, a module for each, whose library is an extra of the package."""
