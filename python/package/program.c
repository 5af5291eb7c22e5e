// The program tutti as a function of the library that the Python package carries.
int main(int argc, char** argv);

__attribute__((visibility("default"))) int tutti_program(int argc, char** argv) {
    return main(argc, argv);
}
