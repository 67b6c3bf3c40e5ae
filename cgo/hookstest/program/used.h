// used.h: takes the place of the library's own in these tests, which have no movable memory.
#ifndef WEIR_USED_H
#define WEIR_USED_H

#define weir_used_kernel(lane, function, params, extra) ((void)0)
#define weir_used_addresses(a, b) ((void)(a), (void)(b))
#define weir_used_graph(lane, exec) ((void)0)
#define weir_used_any() ((void)0)
#define WEIR_USING(a, b, call) (weir_used_addresses(a, b), (call))

#endif
