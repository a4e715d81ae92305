// Catch2's main, compiled once: it is the dearest file of the tests.
#define CATCH_CONFIG_MAIN
#include "tests/catch.h"
