// version.h: the one place that names the version of the library.
#ifndef WEIR_VERSION_H
#define WEIR_VERSION_H

#define WEIR_VERSION "0.1.0"

#endif
