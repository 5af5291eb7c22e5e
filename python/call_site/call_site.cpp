#include "call_site/call_site.hpp"

#include <Python.h>
#if defined(Py_LIMITED_API)  // one module for all versions: only public functions, and no structure's fields
#define TUTTI_PUBLIC_FRAMES
#include <dlfcn.h>
#else
#include <frameobject.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030e0000 && !defined(TUTTI_PUBLIC_FRAMES)
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

namespace tutti::python {
namespace {

#if defined(Py_LIMITED_API)
// Every version from 3.11 on has these, though the stable ABI does not list them.
template <typename Function>
Function* interpreters(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}
int PyGILState_Check() {
    static auto* const function = interpreters<int()>("PyGILState_Check");
    return function();
}
PyFrameObject* PyFrame_GetBack(PyFrameObject* frame) {
    static auto* const function = interpreters<PyFrameObject*(PyFrameObject*)>("PyFrame_GetBack");
    return function(frame);
}
int PyFrame_GetLasti(PyFrameObject* frame) {
    static auto* const function = interpreters<int(PyFrameObject*)>("PyFrame_GetLasti");
    return function(frame);
}
int PyCode_Addr2Line(PyCodeObject* code, int instruction) {
    static auto* const function = interpreters<int(PyCodeObject*, int)>("PyCode_Addr2Line");
    return function(code, instruction);
}
#endif

// A thread's frames, from the innermost out.
#if !defined(Py_LIMITED_API) && PY_VERSION_HEX < 0x030b0000
class Frames {
 public:
    explicit Frames(PyThreadState* thread) : frame_(thread->frame) {}
    explicit operator bool() const { return frame_ != nullptr; }
    void leave() { frame_ = frame_->f_back; }
    PyCodeObject* code() const { return frame_->f_code; }
    int instruction() const { return frame_->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT)); }

 private:
    PyFrameObject* frame_;
};
#elif PY_VERSION_HEX < 0x030e0000 && !defined(TUTTI_PUBLIC_FRAMES)
// The public functions would make an object of each frame, which costs a tenth of a short call.
class Frames {
 public:
    explicit Frames(PyThreadState* thread) {
#if PY_VERSION_HEX < 0x030d0000
        frame_ = thread->cframe->current_frame;
#else
        frame_ = thread->current_frame;
#endif
        skip_others();
    }
    explicit operator bool() const {
        return frame_ != nullptr;
    }
    void leave() {
        frame_ = frame_->previous;
        skip_others();
    }
    PyCodeObject* code() const {
#if PY_VERSION_HEX < 0x030d0000
        return frame_->f_code;
#else
        return reinterpret_cast<PyCodeObject*>(frame_->f_executable);
#endif
    }
    int instruction() const {
        return static_cast<int>(_PyInterpreterFrame_LASTI(frame_)) * static_cast<int>(sizeof(_Py_CODEUNIT));
    }

 private:
    // Frames that stand for functions in C.
    void skip_others() {
#if PY_VERSION_HEX >= 0x030c0000
        while (frame_ != nullptr && frame_->owner == FRAME_OWNED_BY_CSTACK) frame_ = frame_->previous;
#endif
    }
    _PyInterpreterFrame* frame_;
};
#else
class Frames {
 public:
    explicit Frames(PyThreadState* thread) : frame_(PyGILState_Check() ? PyThreadState_GetFrame(thread) : nullptr) {}
    ~Frames() { Py_XDECREF(reinterpret_cast<PyObject*>(frame_)); }
    Frames(const Frames&) = delete;
    Frames& operator=(const Frames&) = delete;
    explicit operator bool() const { return frame_ != nullptr; }
    void leave() {
        PyFrameObject* const inner = std::exchange(frame_, PyFrame_GetBack(frame_));
        Py_DECREF(reinterpret_cast<PyObject*>(inner));
    }
    PyCodeObject* code() const {
        PyCodeObject* const code = PyFrame_GetCode(frame_);
        Py_DECREF(reinterpret_cast<PyObject*>(code));  // the frame holds it
        return code;
    }
    int instruction() const { return PyFrame_GetLasti(frame_); }

 private:
    PyFrameObject* frame_;
};
#endif

#if !defined(Py_LIMITED_API)
// In UTF-8. A string's own conversion would need the interpreter's lock.
std::string text_of(PyObject* text) {
    std::string result;
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); ++i) {
        const std::uint32_t c = PyUnicode_READ_CHAR(text, i);
        const auto tail = [&](int shift) { result += static_cast<char>(0x80 | ((c >> shift) & 0x3f)); };
        if (c < 0x80) {
            result += static_cast<char>(c);
        } else if (c < 0x800) {
            result += static_cast<char>(0xc0 | (c >> 6));
            tail(0);
        } else if (c < 0x10000) {
            result += static_cast<char>(0xe0 | (c >> 12));
            tail(6), tail(0);
        } else {
            result += static_cast<char>(0xf0 | (c >> 18));
            tail(12), tail(6), tail(0);
        }
    }
    return result;
}
#endif

std::vector<std::string>& packages() {
    static auto& folders = *new std::vector<std::string>;
    return folders;
}
bool is_program(const std::string& file) {
    // What stands between a `with` statement, or a decorated function, and its caller.
    constexpr std::array wrappers{"/contextlib.py", "/functools.py", "/typing_extensions.py", "/warnings.py"};
    const auto holds = [&](const std::string& folder) { return file.starts_with(folder); };
    const auto ends = [&](const char* name) { return file.ends_with(name); };
    return !std::ranges::any_of(packages(), holds) && !std::ranges::any_of(wrappers, ends) &&
           !file.starts_with("<frozen ");
}

// Texts are kept for good, since a record may be looked at later; programs that make code without end have many.
const char* kept(std::string text) {
    constexpr std::size_t most = 1 << 16;
    static auto& mutex = *new std::mutex;
    static auto& texts = *new std::set<std::string>;
    const std::lock_guard lock(mutex);
    if (texts.size() >= most && !texts.contains(text)) return "a line of Python";
    return texts.insert(std::move(text)).first->c_str();
}

#if defined(Py_LIMITED_API)
std::string text_of(PyCodeObject* code, const char* attribute) {
    PyObject* const text = PyObject_GetAttrString(reinterpret_cast<PyObject*>(code), attribute);
    const char* const bytes = text != nullptr ? PyUnicode_AsUTF8AndSize(text, nullptr) : nullptr;
    if (bytes == nullptr) PyErr_Clear();  // a name with a lone surrogate
    std::string result = bytes != nullptr ? bytes : "?";
    Py_XDECREF(text);
    return result;
}

// The text for an instruction that was looked up before. The entry holds the code object, so that no other one comes to
// lie at the same place.
struct Known {
    PyCodeObject* code = nullptr;
    int instruction = 0;
    const char* text = nullptr;  // null: it is not the program's
};

Known look_up(PyCodeObject* code, int instruction) {
    static auto& all = *new std::array<Known, 128>;  // the interpreter's lock guards it
    const std::size_t place = (reinterpret_cast<std::uintptr_t>(code) >> 5) + static_cast<std::size_t>(instruction);
    Known& known = all[place % all.size()];
    if (known.code == code && known.instruction == instruction) return known;
    const std::string file = text_of(code, "co_filename");
    const char* text = nullptr;
    if (is_program(file)) {
        const int line = PyCode_Addr2Line(code, instruction);
        text = kept(file + ":" + std::to_string(line) + " in " + text_of(code, "co_name"));
    }
    Py_INCREF(reinterpret_cast<PyObject*>(code));
    const Known before = std::exchange(known, {code, instruction, text});
    Py_XDECREF(reinterpret_cast<PyObject*>(before.code));
    return {code, instruction, text};
}
#else
// The text for an instruction that was looked up before. Another code object may come to lie at the same place: it has
// other lines then.
struct Known {
    const PyCodeObject* code = nullptr;
    int instruction = 0;
    const PyObject* lines = nullptr;
    int first_line = 0;
    const char* text = nullptr;  // null: it is not the program's
};

const Known& look_up(PyCodeObject* code, int instruction) {
    constexpr std::size_t count = 128;
    // Not in the thread's own block: a module that is loaded late gets little there.
    thread_local const std::unique_ptr<std::array<Known, count> > all(new std::array<Known, count>);
    const std::size_t place = (reinterpret_cast<std::uintptr_t>(code) >> 5) + static_cast<std::size_t>(instruction);
    Known& known = (*all)[place % count];
    if (known.code == code && known.instruction == instruction && known.lines == code->co_linetable &&
        known.first_line == code->co_firstlineno) {
        return known;
    }
    const std::string file = text_of(code->co_filename);
    const char* text = nullptr;
    if (is_program(file)) {
        const int line = PyCode_Addr2Line(code, instruction);
        text = kept(file + ":" + std::to_string(line) + " in " + text_of(code->co_name));
    }
    return known = {code, instruction, code->co_linetable, code->co_firstlineno, text};
}
#endif

}  // namespace

void set_packages(std::vector<std::string> folders) {
    for (std::string& folder : folders) {
        if (!folder.ends_with('/')) folder += '/';
    }
    packages() = std::move(folders);
}

const char* call_site() noexcept {
    PyThreadState* const thread = PyGILState_GetThisThreadState();
    if (thread == nullptr) return nullptr;
    try {
        for (Frames frames(thread); frames; frames.leave()) {
            if (const char* text = look_up(frames.code(), frames.instruction()).text) return text;
        }
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory: then without a line
    }
    return nullptr;
}

}  // namespace tutti::python
