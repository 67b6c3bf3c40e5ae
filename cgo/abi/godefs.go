//go:build ignore

// Input of `go tool cgo -godefs`: names the C declarations that types.go gets Go forms of.

package abi

/*
#include "weir_abi.h"
*/
import "C"

const (
	Version          = C.WEIR_ABI_VERSION
	Oldest           = C.WEIR_ABI_OLDEST
	GPUsMax          = C.WEIR_GPUS_MAX
	MsgBytesMax      = C.WEIR_MSG_BYTES_MAX
	PageBytes        = C.WEIR_PAGE_BYTES
	SessionsMax      = C.WEIR_SESSIONS_MAX
	SharesMax        = C.WEIR_SHARES_MAX
	ContextsMax      = C.WEIR_CONTEXTS_MAX
	HelloMagic       = C.WEIR_HELLO_MAGIC
	ControlMagic     = C.WEIR_CONTROL_MAGIC
	UsageMagic       = C.WEIR_USAGE_MAGIC
	Unlimited        = C.WEIR_UNLIMITED
	MsgHello         = C.WEIR_MSG_HELLO
	MsgWelcome       = C.WEIR_MSG_WELCOME
	MsgRequest       = C.WEIR_MSG_REQUEST
	MsgVerdict       = C.WEIR_MSG_VERDICT
	MsgQuery         = C.WEIR_MSG_QUERY
	MsgAnswer        = C.WEIR_MSG_ANSWER
	MsgNote          = C.WEIR_MSG_NOTE
	MsgClose         = C.WEIR_MSG_CLOSE
	MsgMeasure       = C.WEIR_MSG_MEASURE
	MsgMeasured      = C.WEIR_MSG_MEASURED
	MsgExport        = C.WEIR_MSG_EXPORT
	MsgImport        = C.WEIR_MSG_IMPORT
	MsgShared        = C.WEIR_MSG_SHARED
	MsgDrop          = C.WEIR_MSG_DROP
	MsgWant          = C.WEIR_MSG_WANT
	MsgLook          = C.WEIR_MSG_LOOK
	MsgDrained       = C.WEIR_MSG_DRAINED
	MsgProgress      = C.WEIR_MSG_PROGRESS
	MsgIdle          = C.WEIR_MSG_IDLE
	MsgMove          = C.WEIR_MSG_MOVE
	MsgMoved         = C.WEIR_MSG_MOVED
	MsgUsed          = C.WEIR_MSG_USED
	MsgFreed         = C.WEIR_MSG_FREED
	LeaseClosed      = C.WEIR_LEASE_CLOSED
	TurnsAlone       = C.WEIR_TURNS_ALONE
	TurnsRivals      = C.WEIR_TURNS_RIVALS
	TurnsBeside      = C.WEIR_TURNS_BESIDE
	KindPlain        = C.WEIR_KIND_PLAIN
	KindPitched      = C.WEIR_KIND_PITCHED
	KindManaged      = C.WEIR_KIND_MANAGED
	KindArray        = C.WEIR_KIND_ARRAY
	KindPool         = C.WEIR_KIND_POOL
	KindCreated      = C.WEIR_KIND_CREATED
	KindGraph        = C.WEIR_KIND_GRAPH
	KindContext      = C.WEIR_KIND_CONTEXT
	KindCode         = C.WEIR_KIND_CODE
	KindLimit        = C.WEIR_KIND_LIMIT
	KindImported     = C.WEIR_KIND_IMPORTED
	KindMovable      = C.WEIR_KIND_MOVABLE
	RequestAgain     = C.WEIR_REQUEST_AGAIN
	Granted          = C.WEIR_GRANTED
	OverCap          = C.WEIR_OVER_CAP
	NoSuchGPU        = C.WEIR_NO_SUCH_GPU
	ChargedElsewhere = C.WEIR_CHARGED_ELSEWHERE
	OverSwap         = C.WEIR_OVER_SWAP
	HostFull         = C.WEIR_HOST_FULL
	ShareAgain       = C.WEIR_SHARE_AGAIN
	GPUCountContext  = C.WEIR_GPU_COUNT_CONTEXT
	GPUVirtual       = C.WEIR_GPU_VIRTUAL
	CloseProtocol    = C.WEIR_CLOSE_PROTOCOL
	CloseVersion     = C.WEIR_CLOSE_VERSION
	CloseIdentity    = C.WEIR_CLOSE_IDENTITY
	ClosePage        = C.WEIR_CLOSE_PAGE
	CloseLimit       = C.WEIR_CLOSE_LIMIT
	CloseShutdown    = C.WEIR_CLOSE_SHUTDOWN
	NoteRefused      = C.WEIR_NOTE_REFUSED
	NoteDriverOOM    = C.WEIR_NOTE_DRIVER_OOM
	NoteUnknownGPU   = C.WEIR_NOTE_UNKNOWN_GPU
	NoteForked       = C.WEIR_NOTE_FORKED
	NoteBadPage      = C.WEIR_NOTE_BAD_PAGE
	NoteBound        = C.WEIR_NOTE_BOUND
	NoteUnconverted  = C.WEIR_NOTE_UNCONVERTED
	NoteExported     = C.WEIR_NOTE_EXPORTED
	PlainCard        = C.WEIR_PLAIN_CARD
	PlainPeers       = C.WEIR_PLAIN_PEERS
	PlainLibrary     = C.WEIR_PLAIN_LIBRARY
	PlainExported    = C.WEIR_PLAIN_EXPORTED
	PlainDriver      = C.WEIR_PLAIN_DRIVER
	ExporterUCX      = C.WEIR_EXPORTER_UCX
	ExporterNVSHMEM  = C.WEIR_EXPORTER_NVSHMEM
	ExporterNCCL     = C.WEIR_EXPORTER_NCCL
	ExportedIPC      = C.WEIR_EXPORTED_IPC
	ExportedRange    = C.WEIR_EXPORTED_RANGE
	ExportedValue    = C.WEIR_EXPORTED_STREAM_VALUE
	BoundPools       = C.WEIR_BOUND_POOLS
	BoundContexts    = C.WEIR_BOUND_CONTEXTS
	BoundHandles     = C.WEIR_BOUND_HANDLES
	BoundShares      = C.WEIR_BOUND_SHARES
	BoundNesting     = C.WEIR_BOUND_NESTING
	BoundGraphs      = C.WEIR_BOUND_GRAPHS
	BoundBytes       = C.WEIR_BOUND_BYTES
	BadPageFile      = C.WEIR_BAD_PAGE_FILE
	BadPageSeals     = C.WEIR_BAD_PAGE_SEALS
	BadPageContents  = C.WEIR_BAD_PAGE_CONTENTS
	ClosePass        = C.WEIR_CLOSE_PASS
	WelcomePass      = C.WEIR_WELCOME_PASS
	WelcomePlain     = C.WEIR_WELCOME_PLAIN
	MovableUnit      = C.WEIR_MOVABLE_UNIT
	MovablesMax      = C.WEIR_MOVABLES_MAX
	MovesMax         = C.WEIR_MOVES_MAX
	MovedMax         = C.WEIR_MOVED_MAX
	NamedMax         = C.WEIR_NAMED_MAX
	MoveOut          = C.WEIR_MOVE_OUT
	MoveFresh        = C.WEIR_MOVE_FRESH
	MoveCancel       = C.WEIR_MOVE_CANCEL
	MoveDone         = C.WEIR_MOVE_DONE
	MoveUndone       = C.WEIR_MOVE_UNDONE
	MoveFailed       = C.WEIR_MOVE_FAILED
	DriverOldest     = C.WEIR_DRIVER_OLDEST
)

type Header C.struct_weir_header

type Held C.struct_weir_held

type Hello C.struct_weir_hello

type Welcome C.struct_weir_welcome

type Request C.struct_weir_request

type Verdict C.struct_weir_verdict

type Query C.struct_weir_query

type Answer C.struct_weir_answer

type Measure C.struct_weir_measure

type Measured C.struct_weir_measured

type ShareKey C.struct_weir_share_key

type Share C.struct_weir_share

type Shared C.struct_weir_shared

type Turn C.struct_weir_turn

type MoveEntry C.struct_weir_move_entry

type Move C.struct_weir_move

type MovedEntry C.struct_weir_moved_entry

type Moved C.struct_weir_moved

type Named C.struct_weir_named

type Note C.struct_weir_note

type Close C.struct_weir_close

type GPUControl C.struct_weir_gpu_control

type ControlPage C.struct_weir_control_page

type GPUUsage C.struct_weir_gpu_usage

type UsagePage C.struct_weir_usage_page
