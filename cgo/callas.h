// callas.h: calls a function of the loader so that it takes another object for its caller.
//
// dlsym and dlopen look at their return address: RTLD_NEXT, RTLD_DEFAULT, RUNPATH and $ORIGIN are
// meant relative to the caller. A hook that only passes a call on jumps there, and the true
// caller's return address is still in place. A hook that needs the result cannot jump; it calls
// with the address of a return instruction inside the caller's object as return address, which
// comes back here.
#ifndef WEIR_CALLAS_H
#define WEIR_CALLAS_H

// Calls function(a, b, c) as if from the object that `caller`, a return address, lies in. Where
// that object has no suitable return instruction the call is made from here.
void *weir_call_as(const void *caller, void *function, const void *a, const void *b, const void *c);

#endif
